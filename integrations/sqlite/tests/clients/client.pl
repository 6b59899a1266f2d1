# A client of Perl's DBD::SQLite: client.pl work|loop|count DATABASE (run_clients.py).
use strict;
use warnings;
use DBI;

$| = 1;
my ($command, $name) = @ARGV;
sub opened { return DBI->connect("dbi:SQLite:dbname=$name", "", "", { RaiseError => 1, AutoCommit => 1 }); }
ADVICE;
my $db = opened();
$db->do("create table if not exists t(a integer primary key, b text)");
if ($command eq "work") {
    $db->begin_work;
    $db->do("insert into t(b) values(?)", undef, "row $_") for 1 .. 100;
    $db->commit;
    $db->begin_work;
    $db->do("delete from t");
    $db->rollback;
    my $other = opened();
    $db->selectrow_array("pragma journal_mode = wal");
    $other->do("insert into t(b) values('other')");
    my ($count) = $db->selectrow_array("select count(*) from t");
    my ($durability) = $db->selectrow_array("pragma memlith_durability");
    print $count, " ", $durability // "plain", "\n";
    $other->disconnect;
} elsif ($command eq "loop") {
    while (1) {
        $db->do("insert into t(b) values('kept')");
        print $db->last_insert_id("", "", "", ""), "\n";
    }
} else {
    my ($count) = $db->selectrow_array("select count(*) from t");
    my ($verdict) = $db->selectrow_array("pragma integrity_check");
    print "$count $verdict\n";
}
$db->disconnect;
