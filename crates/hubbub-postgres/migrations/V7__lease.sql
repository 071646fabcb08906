-- The right of one server to be the only one that changes keys: so it answers reads of them from memory, and asks nothing.

-- Whoever changes keys compares the generation, behind the lock that all who do so take.
create table kv_lease (
    one boolean primary key default true check (one),
    generation bigint not null,
    -- The server that has the right; null = all may change keys.
    holder bigint,
    -- The history it was so in: another one may have lost what was written here.
    epoch text not null
);
insert into kv_lease (generation, epoch) select 1, coalesce((select epoch from history), '');

-- The servers there are. Others measure by their own clocks how long a beat has stood still.
create table kv_servers (
    id bigint primary key,
    beat bigint not null
) with (fillfactor = 50);

-- Servers of before know of no lease, and give no value to this column: then its default refuses what they do beside one.
create function kv_refuse_older_servers() returns boolean language plpgsql as $$
begin
    if exists (select from kv_lease where holder is not null) then
        raise exception 'a newer server is the only one that may change keys: update this one'
            using errcode = 'object_not_in_prerequisite_state';
    end if;
    return true;
end $$;
alter table kv_changes add column knows_lease boolean not null default true;
alter table kv_changes alter knows_lease set default kv_refuse_older_servers();
