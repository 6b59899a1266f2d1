// A client of Java's sqlite-jdbc: Client.java work|loop|count DATABASE (run_clients.py).
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.Statement;
import org.sqlite.SQLiteConfig;

public class Client {
  static String value(Connection db, String sql) throws Exception {
    try (Statement statement = db.createStatement()) {
      if (!statement.execute(sql)) return "plain";
      ResultSet row = statement.getResultSet();
      return row.next() ? row.getString(1) : "plain";
    }
  }

  static void run(Connection db, String sql) throws Exception {
    try (Statement statement = db.createStatement()) {
      statement.execute(sql);
    }
  }

  public static void main(String[] arguments) throws Exception {
    String command = arguments[0], address = "jdbc:sqlite:" + arguments[1];
    SQLiteConfig config = new SQLiteConfig();
    config.enableLoadExtension(true);
    try (Connection loader = DriverManager.getConnection("jdbc:sqlite::memory:", config.toProperties())) {
      run(loader, "ADVICE");
    }
    Connection db = DriverManager.getConnection(address);
    run(db, "create table if not exists t(a integer primary key, b text)");
    if (command.equals("work")) {
      db.setAutoCommit(false);
      for (int i = 0; i < 100; ++i) run(db, "insert into t(b) values('row " + i + "')");
      db.commit();
      run(db, "delete from t");
      db.rollback();
      db.setAutoCommit(true);
      Connection other = DriverManager.getConnection(address);
      value(db, "pragma journal_mode = wal");
      run(other, "insert into t(b) values('other')");
      System.out.println(value(db, "select count(*) from t") + " " + value(db, "pragma memlith_durability"));
      other.close();
    } else if (command.equals("loop")) {
      while (true) {
        run(db, "insert into t(b) values('kept')");
        System.out.println(value(db, "select last_insert_rowid()"));
      }
    } else {
      System.out.println(value(db, "select count(*) from t") + " " + value(db, "pragma integrity_check"));
    }
    db.close();
  }
}
