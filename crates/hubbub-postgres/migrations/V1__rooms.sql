-- Rooms, their messages, and who takes part.

-- What this history is called, and the database it was made in: a restored or promoted one gets another name.
create table history (
    one boolean primary key default true check (one),
    epoch text not null,
    system_identifier text not null,
    timeline integer not null
);

-- Numbers for names, so that messages are narrow. A name keeps its number for ever.
create table users (
    no integer generated always as identity primary key,
    id text collate "C" not null unique
);

-- Whoever changes a room, or adds a message to it, holds its row: so the order of commits is the order of numbers.
create table rooms (
    no integer generated always as identity primary key,
    id text collate "C" not null unique,
    -- Number of the newest message.
    head bigint not null default 0,
    -- Everything before it is deleted.
    oldest bigint not null default 1,
    -- Messages kept: head - oldest + 1 without the erased ones.
    messages bigint not null default 0,
    -- Rows of `erased` from `oldest` on.
    erased bigint not null default 0,
    members bigint not null default 0,
    -- Grows with every change that is not a new message: what is remembered of the room is wrong from then on.
    changes bigint not null default 0,
    -- Those of them that moved read marks and did nothing else: who may read what, and what there is to read, stayed.
    marks bigint not null default 0,
    last_received_at timestamptz,
    title text,
    members_only boolean not null default false,
    retention_s bigint,
    -- Deleted, but its numbers go on if it is made again.
    deleted boolean not null default false
) with (fillfactor = 60);

create table members (
    room integer not null references rooms,
    member integer not null references users,
    read_seq bigint not null,
    primary key (room, member)
) with (fillfactor = 80);
create index members_of_user on members (member, room);

-- Messages, partitioned by the time they were received. There is no default partition: a message that fits nowhere is
-- refused, loudly, instead of standing in the way of the partition that is missing.
-- No foreign keys here: numbers of rooms and users are never given back, and checks for each row would cost a fifth of
-- the rate.
-- Each partition has a primary key of its own, (room, seq). One of all partitions would have to hold the time too, and
-- with three columns PostgreSQL leaves the pages of the index half empty where many rooms grow: 71 bytes for each message
-- instead of 32.
create table messages (
    room integer not null,
    sender integer not null,
    seq bigint not null,
    received_at timestamptz not null,
    sent_at timestamptz not null,
    kind "char" not null,
    message_id text collate "C" not null,
    -- Empty = none. Without a null a row is 16 bytes shorter.
    username text not null default '',
    body text not null
) partition by range (received_at);
create index messages_of_user on messages (sender, received_at);

-- Which ids were used: a unique key of `messages` cannot span its partitions. The hash stands for the id: 128 bits of
-- SHA-256.
create table message_ids (
    room integer not null,
    id_hash uuid not null,
    received_at timestamptz not null,
    seq bigint not null,
    primary key (room, id_hash)
) partition by hash (room, id_hash);
do $$
begin
    for part in 0..7 loop
        execute format('create table message_ids_%s partition of message_ids for values with (modulus 8, remainder %s)', part, part);
    end loop;
end $$;

-- Messages erased one by one, by room; the numbers stay, so that unread messages can be counted.
create table erased (
    room integer not null,
    seq bigint not null,
    primary key (room, seq)
);

-- Messages that nobody sees any more, and that are still to be taken out of the counts and removed: those of a room
-- from one number to another, of one sender or of all.
create table takeouts (
    no bigint generated always as identity primary key,
    room integer not null,
    first_seq bigint not null,
    last_seq bigint not null,
    sender integer
);
