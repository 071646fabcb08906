-- Rows of rooms that can be found and replaced at the same price, however many old versions of them cannot be cleared away
-- beside a session that holds a snapshot open. A unique index has to look at all versions of a row for each further one.
-- So the names and numbers are unique in a table that nothing changes, and the rows of `rooms` are made with theirs.

-- Older servers that still run neither make a room meanwhile, which would miss there, nor take its number.
lock table rooms, members in access exclusive mode;

create table room_names (
    no integer generated always as identity primary key,
    id text collate "C" not null unique
);
insert into room_names (no, id) overriding system value select no, id from rooms order by no;
select setval(pg_get_serial_sequence('room_names', 'no'), coalesce(max(no), 0) + 1, false) from room_names;

alter table members drop constraint members_room_fkey, add foreign key (room) references room_names;
alter table rooms alter no drop identity, drop constraint rooms_pkey, drop constraint rooms_id_key;
-- Lists of equal entries are searched forwards, also by who searches backwards for the newest one.
create index rooms_by_no on rooms (no) with (deduplicate_items = off);
create index rooms_by_id on rooms (id) with (deduplicate_items = off);
