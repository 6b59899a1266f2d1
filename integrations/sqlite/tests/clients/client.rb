# A client of Ruby's sqlite3: client.rb work|loop|count DATABASE (run_clients.py).
require "sqlite3"

$stdout.sync = true
command, name = ARGV
ADVICE
db = SQLite3::Database.new(name)
db.busy_timeout = 10_000
db.execute("create table if not exists t(a integer primary key, b text)")
case command
when "work"
  db.transaction { 100.times { |i| db.execute("insert into t(b) values(?)", ["row #{i}"]) } }
  db.transaction
  db.execute("delete from t")
  db.rollback
  other = SQLite3::Database.new(name)
  db.execute("pragma journal_mode = wal")
  other.execute("insert into t(b) values('other')")
  count = db.execute("select count(*) from t")[0][0]
  durability = db.execute("pragma memlith_durability")[0]
  puts "#{count} #{durability ? durability[0] : "plain"}"
  other.close
when "loop"
  loop do
    db.execute("insert into t(b) values('kept')")
    puts db.last_insert_row_id
  end
else
  puts "#{db.execute("select count(*) from t")[0][0]} #{db.execute("pragma integrity_check")[0][0]}"
end
db.close
