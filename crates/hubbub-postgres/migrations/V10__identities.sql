-- A publication of all tables, as logical replication makes it, lets nobody update or delete rows that nothing identifies.
-- `rooms` has no unique key, on purpose, so the whole row identifies it; that costs nothing unless `wal_level` is `logical`.
alter table rooms replica identity full;
