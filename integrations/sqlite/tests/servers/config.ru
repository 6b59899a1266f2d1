# The web application of run_servers.py in Ruby, for Puma.
require 'sqlite3'

def connection
  Thread.current[:db] = nil if Thread.current[:process] != Process.pid
  Thread.current[:process] = Process.pid
  Thread.current[:db] ||= SQLite3::Database.new(ENV['DATABASE']).tap { |db| db.busy_timeout = 30_000 }
end

def answer(path)
  db = connection
  return [200, (db.get_first_value('pragma memlith_share') || 'plain')] if path == '/mode'
  return [200, db.get_first_value('select sum(v) from counter').to_s] if path == '/sum'

  row = path.split('/').last.to_i
  begin
    db.execute('begin')
    value = db.get_first_value('select v from counter where id = ?', row) + 1
    db.execute('update counter set v = ? where id = ?', [value, row])
    db.execute('commit')
    [200, value.to_s]
  rescue SQLite3::Exception => e
    db.execute('rollback') if db.transaction_active?
    [503, e.message]
  end
end

run(lambda do |env|
  code, text = answer(env['PATH_INFO'])
  [code, { 'content-type' => 'text/plain' }, [text]]
end)
