\set home random(1, :warehouses)
select show_order(:home);
