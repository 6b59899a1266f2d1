\set home random(1, :warehouses)
select pay(:home, :warehouses);
