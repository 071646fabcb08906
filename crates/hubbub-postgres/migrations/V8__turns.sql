-- The newest version of a room's row stands last of its room in the indexes, wherever its place in the table is. Without
-- the turn, equal entries stand in the order of their places; a vacuum beside an open snapshot gives back places at the
-- beginning of the table, and who took one of those was found only behind all versions of the room.
drop index rooms_by_no;
drop index rooms_by_id;

-- How often the row was written, and a sixteenth of that: 15 of 16 versions need no entry of their own in the indexes. Who
-- does not count, such as servers of before, only makes the search longer. No row is written here: a session with a snapshot
-- from before would see none.
alter table rooms add writes bigint not null default 0, add turn bigint not null default 0;
create index rooms_by_no on rooms (no, turn) with (deduplicate_items = off);
create index rooms_by_id on rooms (id, turn) with (deduplicate_items = off);
