// A client of node:sqlite, of Node and of Deno: client_node.mjs work|loop|count DATABASE (run_clients.py).
import fs from 'node:fs';
import { createRequire } from 'node:module';
import process from 'node:process';
import { DatabaseSync } from 'node:sqlite';
const require = createRequire(import.meta.url);
const [command, name] = process.argv.slice(2);

ADVICE;
const db = new DatabaseSync(name);
db.exec('create table if not exists t(a integer primary key, b text)');
const value = (sql) => Object.values(db.prepare(sql).get() ?? { none: 'plain' })[0];
if (command === 'work') {
  const insert = db.prepare('insert into t(b) values(?)');
  db.exec('begin');
  for (let i = 0; i < 100; ++i) insert.run(`row ${i}`);
  db.exec('commit');
  db.exec('begin; delete from t; rollback');
  const other = new DatabaseSync(name);
  value('pragma journal_mode = wal');
  other.exec("insert into t(b) values('other')");
  console.log(value('select count(*) from t'), value('pragma memlith_durability'));
  other.close();
} else if (command === 'loop') {
  const insert = db.prepare("insert into t(b) values('kept')");
  for (;;) fs.writeSync(1, `${insert.run().lastInsertRowid}\n`);
} else {
  console.log(value('select count(*) from t'), value('pragma integrity_check'));
}
db.close();
