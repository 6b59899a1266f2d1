<?php
// The web application of run_servers.py in PHP. LD_PRELOAD does not reach PHP's modules: the plugin is loaded as an
// extension, once in each worker, and is the default from then on (MEMLITH_SQLITE_DEFAULT=1). Each request has a
// connection of its own; foresight is forgotten when the last one is closed, so the transaction says that it writes.
function connection(): SQLite3 {
    $loader = new SQLite3(':memory:');
    $loader->loadExtension(getenv('MEMLITH_EXTENSION'));
    $db = new SQLite3(getenv('DATABASE'));
    $db->enableExceptions(true);
    $db->busyTimeout(30000);
    return $db;
}
$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
$db = connection();
if ($path === '/mode') {
    echo $db->querySingle('pragma memlith_share') ?? 'plain';
} elseif ($path === '/sum') {
    echo $db->querySingle('select sum(v) from counter');
} else {
    $row = intval(basename($path));
    try {
        $db->exec('begin immediate');
        $value = $db->querySingle("select v from counter where id = $row") + 1;
        $db->exec("update counter set v = $value where id = $row");
        $db->exec('commit');
        echo $value;
    } catch (Exception $error) {
        http_response_code(503);
        echo $error->getMessage();
    }
}
$db->close();
