-- Keys and their values.

-- One writer at a time, who holds an advisory lock until the commit: there is no row that every batch would leave a dead
-- version of.
create table kv (
    key bytea primary key,
    value bytea not null,
    -- That of its last change.
    revision bigint not null,
    expires_at timestamptz,
    -- When the value that this one took the place of ran out, or was to: so a put knows whether its key was there.
    replaced timestamptz
) with (fillfactor = 80);
-- Without the revision: so most new values touch no index.
create index kv_by_expiry on kv (expires_at) where expires_at is not null;

-- The last changes, each a revision further than the one before: the newest row says where the store stands.
create table kv_changes (
    revision bigint primary key,
    key bytea not null,
    -- 'P' = put, 'D' = deleted, 'E' = ran out.
    what "char" not null
);
