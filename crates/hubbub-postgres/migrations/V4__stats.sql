-- Partitions of messages, and counts of messages.

-- The partitions of `messages`, each with the time it covers. None overlaps another.
create table partitions (
    begins timestamptz primary key,
    ends timestamptz not null check (ends > begins),
    name text not null unique,
    -- Pages whose messages' ids are removed already, before it is dropped.
    cleaned_pages bigint not null default 0
);
-- How far the messages of each room are counted. A table of its own: the rows of `rooms` are the writers'.
create table counted (
    room integer primary key,
    seq bigint not null,
    -- When that message was received: those to be counted next are not older.
    received_at timestamptz not null
) with (fillfactor = 60);

-- What each user wrote in each room.
create table pair_counts (
    sender integer not null,
    room integer not null,
    messages bigint not null,
    first timestamptz not null,
    last timestamptz not null,
    primary key (sender, room)
) with (fillfactor = 90);
create index pair_counts_of_room on pair_counts (room);

create table room_counts (
    room integer primary key,
    messages bigint not null,
    users bigint not null,
    first timestamptz not null,
    last timestamptz not null
) with (fillfactor = 60);

create table user_counts (
    sender integer primary key,
    messages bigint not null,
    rooms bigint not null,
    first timestamptz not null,
    last timestamptz not null
) with (fillfactor = 80);

create table hour_counts (
    hour timestamptz primary key,
    texts bigint not null,
    joins bigint not null,
    leaves bigint not null
) with (fillfactor = 60);

create table hour_room_counts (
    hour timestamptz not null,
    room integer not null,
    messages bigint not null,
    primary key (hour, room)
) with (fillfactor = 90);

-- Who wrote in an hour, a bit for each of the 1,024 users of a block. A row for each user would be as many rows as there
-- are messages where there are many users.
create table hour_users (
    hour timestamptz not null,
    block integer not null,
    users bit(1024) not null,
    primary key (hour, block)
) with (fillfactor = 80);

-- For windows that begin or end within an hour. Messages lie in the order of their time, so a few bytes for each 32 pages
-- do.
create index messages_by_time on messages using brin (received_at) with (pages_per_range = 32, autosummarize = on);

-- Whether they are taken out of the counts, so that only their removal is left.
alter table takeouts add column counted_out boolean not null default false;
-- The partition with which they are removed; null = they are removed one by one.
alter table takeouts add column partition timestamptz;
create index takeouts_of_room on takeouts (room, last_seq);

-- Rooms that keep their messages for another time than the others.
create index rooms_with_retention on rooms (no) where retention_s is not null;
