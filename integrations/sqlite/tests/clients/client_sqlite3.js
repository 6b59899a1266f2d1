// A client of npm's sqlite3: client_sqlite3.js work|loop|count DATABASE (run_clients.py).
const sqlite3 = require('sqlite3');
const [command, name] = process.argv.slice(2);

const open = () => new Promise((resolve, reject) => {
  const db = new sqlite3.Database(name, (error) => (error ? reject(error) : resolve(db)));
});
const run = (db, sql, ...values) => new Promise((resolve, reject) => {
  db.run(sql, values, function (error) { error ? reject(error) : resolve(this.lastID); });
});
const get = (db, sql) => new Promise((resolve, reject) =>
  db.get(sql, (error, row) => (error ? reject(error) : resolve(row))));
const close = (db) => new Promise((resolve, reject) => db.close((error) => (error ? reject(error) : resolve())));

(async () => {
  const db = await open();
  await run(db, 'create table if not exists t(a integer primary key, b text)');
  if (command === 'work') {
    await run(db, 'begin');
    for (let i = 0; i < 100; ++i) await run(db, 'insert into t(b) values(?)', `row ${i}`);
    await run(db, 'commit');
    await run(db, 'begin');
    await run(db, 'delete from t');
    await run(db, 'rollback');
    const other = await open();
    await get(db, 'pragma journal_mode = wal');
    await run(other, "insert into t(b) values('other')");
    const count = (await get(db, 'select count(*) as c from t')).c;
    const durability = await get(db, 'pragma memlith_durability');
    console.log(count, durability ? Object.values(durability)[0] : 'plain');
    await close(other);
  } else if (command === 'loop') {
    for (;;) console.log(await run(db, "insert into t(b) values('kept')"));
  } else {
    const count = (await get(db, 'select count(*) as c from t')).c;
    console.log(count, (await get(db, 'pragma integrity_check')).integrity_check);
  }
  await close(db);
})();
