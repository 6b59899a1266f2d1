# Runs a file of SQLite's tests, `testfixture each_command.tcl FILE`, command by command: one that fails outside of a
# test is told, and does not end the file, so that the tests behind it are run too. Who copies or renames a database
# takes its log along, as memlith's users have to.
rename file file_itself
proc file {subcommand args} {
  if {$subcommand in {copy rename} && [llength $args] >= 2} {
    lassign [lrange $args end-1 end] source target
    if {[file_itself isfile $source.memlith] && ![file_itself isdirectory $target]} {
      file_itself $subcommand -force $source.memlith $target.memlith
    }
  }
  # Who takes all files of a database finds it there already.
  if {$subcommand in {copy rename} && [string match *.memlith [lindex $args 0]]} {set args [linsert $args 0 -force]}
  uplevel 1 [list file_itself $subcommand {*}$args]
}
# Tests of journals leave themselves out where a VFS has atomic batch writes, as memlith says; but this SQLite is built
# without them.
catch {rename atomic_batch_write {}}
proc atomic_batch_write {file} {return 0}
set argv0 [lindex $argv 0]
set argv {}
info script $argv0
set each_command(file) [open $argv0]
fconfigure $each_command(file) -encoding utf-8
set each_command(text) {}
while {[gets $each_command(file) each_command(line)] >= 0} {
  append each_command(text) $each_command(line) \n
  if {![info complete $each_command(text)]} continue
  set each_command(now) $each_command(text)
  set each_command(text) {}
  set each_command(code) [catch $each_command(now) each_command(said)]
  if {$each_command(code) == 2} break
  if {$each_command(code) == 1} {puts "\n! outside of a test: $each_command(said)"}
}
if {$each_command(text) ne {}} {puts "\n! outside of a test: a command without its end"}
