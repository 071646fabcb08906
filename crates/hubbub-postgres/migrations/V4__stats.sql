-- Partitions of messages, and counts of messages.

-- The partitions of `messages`, each with the time it covers. None overlaps another.
create table partitions (
    begins timestamptz primary key,
    ends timestamptz not null check (ends > begins),
    name text not null unique
);
