-- The tables of TPC-C, filled for :warehouses warehouses of about 100 MB, and its transactions as functions.
-- Differences from its specification: terminals neither think nor type, a client serves all warehouses, the ten texts
-- of a row of stock are one array, and texts are hexadecimal digits at random.
\set ON_ERROR_STOP 1

create function pick(lowest int, highest int) returns int language sql volatile
return lowest + floor(random() * (highest - lowest + 1))::int;

create function pick_skewed(a int, lowest int, highest int) returns int language sql volatile
return ((pick(0, a) | pick(lowest, highest)) + a / 3) % (highest - lowest + 1) + lowest;

create function text_of(length int) returns text language sql volatile
return left(md5(random()::text) || md5(random()::text), length);

create function name_of(number int) returns text language sql immutable
return (array['BAR', 'OUGHT', 'ABLE', 'PRI', 'PRES', 'ESE', 'ANTI', 'CALLY', 'ATION', 'EING'])[number / 100 + 1] ||
       (array['BAR', 'OUGHT', 'ABLE', 'PRI', 'PRES', 'ESE', 'ANTI', 'CALLY', 'ATION', 'EING'])[number / 10 % 10 + 1] ||
       (array['BAR', 'OUGHT', 'ABLE', 'PRI', 'PRES', 'ESE', 'ANTI', 'CALLY', 'ATION', 'EING'])[number % 10 + 1];

create table warehouse(w_id int, w_name text, w_address text, w_tax numeric(4, 4), w_ytd numeric(12, 2));
create table district(d_w_id int, d_id int, d_name text, d_address text, d_tax numeric(4, 4), d_ytd numeric(12, 2),
  d_next_o_id int);
create table customer(c_w_id int, c_d_id int, c_id int, c_first text, c_last text, c_address text, c_phone text,
  c_since timestamptz, c_credit text, c_credit_lim numeric(12, 2), c_discount numeric(4, 4), c_balance numeric(12, 2),
  c_ytd_payment numeric(12, 2), c_payment_cnt int, c_delivery_cnt int, c_data text);
create table history(h_c_id int, h_c_d_id int, h_c_w_id int, h_d_id int, h_w_id int, h_date timestamptz,
  h_amount numeric(6, 2), h_data text);
create table orders(o_w_id int, o_d_id int, o_id int, o_c_id int, o_entry_d timestamptz, o_carrier_id int, o_ol_cnt int,
  o_all_local boolean);
create table new_order(no_w_id int, no_d_id int, no_o_id int);
create table order_line(ol_w_id int, ol_d_id int, ol_o_id int, ol_number int, ol_i_id int, ol_supply_w_id int,
  ol_delivery_d timestamptz, ol_quantity int, ol_amount numeric(6, 2), ol_dist_info text);
create table item(i_id int, i_im_id int, i_name text, i_price numeric(5, 2), i_data text);
create table stock(s_w_id int, s_i_id int, s_quantity int, s_dist text[], s_ytd int, s_order_cnt int, s_remote_cnt int,
  s_data text);

insert into item select i, pick(1, 10000), text_of(20), pick(100, 10000) / 100.0, text_of(40)
  from generate_series(1, 100000) i;
insert into warehouse select w, text_of(8), text_of(60), pick(0, 2000) / 10000.0, 300000
  from generate_series(1, :warehouses) w;
insert into stock
  select w, i, pick(10, 100), array[text_of(24), text_of(24), text_of(24), text_of(24), text_of(24), text_of(24),
                                    text_of(24), text_of(24), text_of(24), text_of(24)], 0, 0, 0, text_of(40)
  from generate_series(1, :warehouses) w, generate_series(1, 100000) i;
insert into district select w, d, text_of(8), text_of(60), pick(0, 2000) / 10000.0, 30000, 3001
  from generate_series(1, :warehouses) w, generate_series(1, 10) d;
insert into customer
  select w, d, c, text_of(12), name_of(case when c <= 1000 then c - 1 else pick_skewed(255, 0, 999) end), text_of(60),
         text_of(16), now(), case when random() < 0.1 then 'BC' else 'GC' end, 50000, pick(0, 5000) / 10000.0, -10, 10,
         1, 0, text_of(64) || text_of(64) || text_of(64) || text_of(64) || text_of(64) || text_of(64)
  from generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(1, 3000) c;
insert into history select c_id, c_d_id, c_w_id, c_d_id, c_w_id, now(), 10, text_of(20) from customer;
insert into orders
  select w, d, o, c, now(), case when o < 2101 then pick(1, 10) end, pick(5, 15), true
  from generate_series(1, :warehouses) w, generate_series(1, 10) d,
       lateral (select row_number() over (order by md5(w || ' ' || d || ' ' || s)) o, s c
                from generate_series(1, 3000) s) places;
insert into new_order select o_w_id, o_d_id, o_id from orders where o_id > 2100;
insert into order_line
  select o_w_id, o_d_id, o_id, number, pick(1, 100000), o_w_id, case when o_id < 2101 then o_entry_d end, 5,
         case when o_id < 2101 then 0 else pick(1, 999999) / 100.0 end, text_of(24)
  from orders, generate_series(1, o_ol_cnt) number;

alter table warehouse add primary key (w_id);
alter table district add primary key (d_w_id, d_id);
alter table customer add primary key (c_w_id, c_d_id, c_id);
create index on customer(c_w_id, c_d_id, c_last, c_first);
alter table orders add primary key (o_w_id, o_d_id, o_id);
create index on orders(o_w_id, o_d_id, o_c_id, o_id);
alter table new_order add primary key (no_w_id, no_d_id, no_o_id);
alter table order_line add primary key (ol_w_id, ol_d_id, ol_o_id, ol_number);
alter table item add primary key (i_id);
alter table stock add primary key (s_w_id, s_i_id);
vacuum analyze;

-- A warehouse other than `home`, where there is one.
create function elsewhere(home int, warehouses int) returns int language sql volatile
return case when warehouses = 1 then home else (home + pick(1, warehouses - 1) - 1) % warehouses + 1 end;

-- By a number, or of those with one last name the one in the middle.
create function pick_customer(warehouse int, district int) returns int language plpgsql as $$
declare
  wanted text := name_of(pick_skewed(255, 0, 999));
  found_ids int[];
begin
  if random() < 0.4 then
    return pick_skewed(1023, 1, 3000);
  end if;
  select array_agg(c_id order by c_first) into found_ids from customer
    where c_w_id = warehouse and c_d_id = district and c_last = wanted;
  return found_ids[(cardinality(found_ids) + 1) / 2];
end $$;

-- 0 if it has an item that does not exist: the client rolls back. Rows of stock are locked in one order.
create function order_items(home int, warehouses int) returns int language plpgsql as $$
declare
  place int := pick(1, 10);
  buyer int := pick_skewed(1023, 1, 3000);
  of_items int := pick(5, 15);
  spoilt boolean := random() < 0.01;
  number int;
  line int := 0;
  wanted record;
  price numeric;
  told text;
begin
  update district set d_next_o_id = d_next_o_id + 1 where d_w_id = home and d_id = place
    returning d_next_o_id - 1 into number;
  perform w_tax, c_discount, c_last, c_credit from warehouse, customer
    where w_id = home and c_w_id = home and c_d_id = place and c_id = buyer;
  insert into orders values (home, place, number, buyer, now(), null, of_items, true);
  insert into new_order values (home, place, number);
  for wanted in
    select * from (select case when spoilt and n = of_items then 100001 else pick_skewed(8191, 1, 100000) end item,
                          case when random() < 0.01 then elsewhere(home, warehouses) else home end supplier,
                          pick(1, 10) quantity
                   from generate_series(1, of_items) n) items order by supplier, item
  loop
    select i_price into price from item where i_id = wanted.item;
    if not found then
      return 0;
    end if;
    update stock
      set s_quantity = s_quantity - wanted.quantity + case when s_quantity >= wanted.quantity + 10 then 0 else 91 end,
          s_ytd = s_ytd + wanted.quantity, s_order_cnt = s_order_cnt + 1,
          s_remote_cnt = s_remote_cnt + (wanted.supplier <> home)::int
      where s_w_id = wanted.supplier and s_i_id = wanted.item returning s_dist[place] into told;
    line := line + 1;
    insert into order_line values (home, place, number, line, wanted.item, wanted.supplier, null, wanted.quantity,
                                   wanted.quantity * price, told);
  end loop;
  return 1;
end $$;

create function pay(home int, warehouses int) returns void language plpgsql as $$
declare
  place int := pick(1, 10);
  amount numeric := pick(100, 500000) / 100.0;
  is_local boolean := random() < 0.85;
  of_warehouse int := case when is_local then home else elsewhere(home, warehouses) end;
  of_district int := case when is_local then place else pick(1, 10) end;
  payer int := pick_customer(of_warehouse, of_district);
  names text;
begin
  update warehouse set w_ytd = w_ytd + amount where w_id = home returning w_name into names;
  update district set d_ytd = d_ytd + amount where d_w_id = home and d_id = place
    returning names || '    ' || d_name into names;
  update customer
    set c_balance = c_balance - amount, c_ytd_payment = c_ytd_payment + amount, c_payment_cnt = c_payment_cnt + 1,
        c_data = case when c_credit = 'GC' then c_data
                      else left(concat_ws(' ', payer, of_district, of_warehouse, place, home, amount, c_data), 500) end
    where c_w_id = of_warehouse and c_d_id = of_district and c_id = payer;
  insert into history values (payer, of_district, of_warehouse, place, home, now(), amount, names);
end $$;

create function show_order(home int) returns int language plpgsql as $$
declare
  place int := pick(1, 10);
  buyer int := pick_customer(home, place);
  number int;
begin
  perform c_balance, c_first, c_last from customer where c_w_id = home and c_d_id = place and c_id = buyer;
  select o_id into number from orders where o_w_id = home and o_d_id = place and o_c_id = buyer
    order by o_id desc limit 1;
  return (select sum(ol_quantity) from order_line where ol_w_id = home and ol_d_id = place and ol_o_id = number);
end $$;

create function deliver(home int) returns void language plpgsql as $$
declare
  carrier int := pick(1, 10);
  number int;
  buyer int;
  total numeric;
begin
  for place in 1..10 loop
    delete from new_order where no_w_id = home and no_d_id = place and no_o_id =
        (select min(no_o_id) from new_order where no_w_id = home and no_d_id = place)
      returning no_o_id into number;
    continue when not found;
    update orders set o_carrier_id = carrier where o_w_id = home and o_d_id = place and o_id = number
      returning o_c_id into buyer;
    with delivered as (update order_line set ol_delivery_d = now()
                       where ol_w_id = home and ol_d_id = place and ol_o_id = number returning ol_amount)
      select sum(ol_amount) into total from delivered;
    update customer set c_balance = c_balance + total, c_delivery_cnt = c_delivery_cnt + 1
      where c_w_id = home and c_d_id = place and c_id = buyer;
  end loop;
end $$;

create function count_low_stock(home int) returns bigint language plpgsql as $$
declare
  place int := pick(1, 10);
  low int := pick(10, 20);
  next_order int;
begin
  select d_next_o_id into next_order from district where d_w_id = home and d_id = place;
  return (select count(distinct s_i_id) from order_line join stock on s_i_id = ol_i_id and s_w_id = ol_w_id
          where ol_w_id = home and ol_d_id = place and ol_o_id between next_order - 20 and next_order - 1
            and s_quantity < low);
end $$;

-- The rows that break a condition of consistency: there are none.
create view broken as
  select 'w_ytd' condition, w_id from warehouse
    where w_ytd <> (select sum(d_ytd) from district where d_w_id = w_id)
  union all
  select 'd_next_o_id', d_w_id from district
    where d_next_o_id - 1 <> (select max(o_id) from orders where o_w_id = d_w_id and o_d_id = d_id)
  union all
  select 'o_ol_cnt', w_id from warehouse
    where (select sum(o_ol_cnt) from orders where o_w_id = w_id)
       <> (select count(*) from order_line where ol_w_id = w_id)
  union all
  select 'no_o_id', w_id from warehouse
    where (select count(*) from orders where o_w_id = w_id and o_carrier_id is null)
       <> (select count(*) from new_order where no_w_id = w_id);
