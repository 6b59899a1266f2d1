\set home random(1, :warehouses)
select deliver(:home);
