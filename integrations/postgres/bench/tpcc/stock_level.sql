\set home random(1, :warehouses)
select count_low_stock(:home);
