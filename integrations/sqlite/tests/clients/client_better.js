// A client of npm's better-sqlite3: client_better.js work|loop|count DATABASE (run_clients.py).
const Database = require('better-sqlite3');
const fs = require('fs');
const [command, name] = process.argv.slice(2);

ADVICE;
const db = new Database(name);
db.exec('create table if not exists t(a integer primary key, b text)');
const value = (sql) => Object.values(db.prepare(sql).get() ?? { none: 'plain' })[0];
if (command === 'work') {
  const insert = db.prepare('insert into t(b) values(?)');
  db.transaction(() => { for (let i = 0; i < 100; ++i) insert.run(`row ${i}`); })();
  db.exec('begin; delete from t; rollback');
  const other = new Database(name);
  db.pragma('journal_mode = wal');
  other.exec("insert into t(b) values('other')");
  let durability = 'plain';
  try {
    durability = db.pragma('memlith_durability', { simple: true }) ?? 'plain';
  } catch (error) { /* not a pragma of plain SQLite */ }
  console.log(value('select count(*) from t'), durability);
  other.close();
} else if (command === 'loop') {
  const insert = db.prepare("insert into t(b) values('kept')");
  for (;;) fs.writeSync(1, `${insert.run().lastInsertRowid}\n`);
} else {
  console.log(value('select count(*) from t'), value('pragma integrity_check'));
}
db.close();
