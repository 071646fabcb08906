-- The database and the table that the history was in: a dump that is restored, or a copy of the database, is another place.
alter table history add database_oid oid, add table_oid oid;
update history set table_oid = tableoid,
    database_oid = (select oid from pg_database where datname = current_database());
alter table history alter database_oid set not null, alter table_oid set not null;
