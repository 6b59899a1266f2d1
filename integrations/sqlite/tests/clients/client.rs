// A client of Rust's rusqlite: client work|loop|count DATABASE (run_clients.py).
use rusqlite::{Connection, OptionalExtension, Result};
use std::io::Write;

fn value(db: &Connection, sql: &str) -> Result<String> {
    let row = db.query_row(sql, [], |row| row.get::<_, rusqlite::types::Value>(0)).optional()?;
    Ok(match row {
        Some(rusqlite::types::Value::Text(text)) => text,
        Some(rusqlite::types::Value::Integer(number)) => number.to_string(),
        _ => "plain".to_string(),
    })
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let (command, name) = (&arguments[1], &arguments[2]);
    ADVICE;
    let mut db = Connection::open(name)?;
    db.execute_batch("create table if not exists t(a integer primary key, b text)")?;
    match command.as_str() {
        "work" => {
            let rows = db.transaction()?;
            for i in 0..100 {
                rows.execute("insert into t(b) values(?)", [format!("row {i}")])?;
            }
            rows.commit()?;
            db.execute_batch("begin; delete from t; rollback")?;
            let other = Connection::open(name)?;
            value(&db, "pragma journal_mode = wal")?;
            other.execute("insert into t(b) values('other')", [])?;
            println!("{} {}", value(&db, "select count(*) from t")?, value(&db, "pragma memlith_durability")?);
        }
        "loop" => loop {
            db.execute("insert into t(b) values('kept')", [])?;
            println!("{}", db.last_insert_rowid());
            std::io::stdout().flush().expect("a reader");
        },
        _ => println!("{} {}", value(&db, "select count(*) from t")?, value(&db, "pragma integrity_check")?),
    }
    Ok(())
}
