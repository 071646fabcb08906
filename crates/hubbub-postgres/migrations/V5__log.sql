-- The log outside the process that rooms are changed through, if one is attached.

-- The attached log. While there is none, rooms are changed by any server.
create table attached_log (
    one boolean primary key default true check (one),
    id text not null,
    partitions integer not null
);

-- How far each partition of the log is executed. Whoever executes operations of a partition holds its row until the
-- commit, so a server that lost the partition waits, and then finds its operations executed.
create table log_offsets (
    partition integer primary key,
    next_offset bigint not null default 0
) with (fillfactor = 10);
