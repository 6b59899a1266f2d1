\set home random(1, :warehouses)
begin;
select order_items(:home, :warehouses) as whole \gset
\if :whole
commit;
\else
rollback;
\endif
