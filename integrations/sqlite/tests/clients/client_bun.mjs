// A client of bun:sqlite: client_bun.mjs work|loop|count DATABASE (run_clients.py).
import { Database } from 'bun:sqlite';
import fs from 'node:fs';
const [command, name] = process.argv.slice(2);

ADVICE;
const db = new Database(name);
db.exec('create table if not exists t(a integer primary key, b text)');
const value = (sql) => Object.values(db.query(sql).get() ?? { none: 'plain' })[0];
if (command === 'work') {
  const insert = db.query('insert into t(b) values(?)');
  db.transaction(() => { for (let i = 0; i < 100; ++i) insert.run(`row ${i}`); })();
  db.exec('begin'); db.exec('delete from t'); db.exec('rollback');
  const other = new Database(name);
  value('pragma journal_mode = wal');
  other.exec("insert into t(b) values('other')");
  console.log(value('select count(*) from t'), value('pragma memlith_durability'));
  other.close();
} else if (command === 'loop') {
  const insert = db.query("insert into t(b) values('kept')");
  for (;;) fs.writeSync(1, `${insert.run().lastInsertRowid}\n`);
} else {
  console.log(value('select count(*) from t'), value('pragma integrity_check'));
}
db.close();
