//! Whether the database keeps what it commits.
//!
//! What is confirmed must survive a crash of the database, or it would come back without the last commits, and in the same
//! history: numbers of names would be given again that servers still have in memory for others. So what writes does not
//! follow `synchronous_commit = off`. All other values wait for this server's disk at least, and are the operator's choice.

use tokio_postgres::Client;

/// An expression that makes commits wait for the disk if they would not: that of this transaction, or those of this session.
/// Any user may. Another value is left alone, so that the session follows when the operator changes it: also to
/// `off`, until it ends.
macro_rules! synchronous {
    (transaction) => {
        $crate::durability::synchronous!(@ "true")
    };
    (session) => {
        $crate::durability::synchronous!(@ "false")
    };
    (@ $is_local:literal) => {
        concat!(
            "case current_setting('synchronous_commit') when 'off' then set_config('synchronous_commit', 'on', ",
            $is_local,
            ") end"
        )
    };
}
pub(crate) use synchronous;

/// For a session that is this server's alone.
pub(crate) const SYNCHRONOUS: &str = concat!("select ", synchronous!(session));

/// Settings of the whole server, and what it means that they are off.
const RISKS: [(&str, &str); 2] = [
    ("fsync", "a crash of its machine may lose what was confirmed, and damage the database"),
    (
        "full_page_writes",
        "a page that a crash of its machine left half written stays damaged, unless the file system writes pages whole",
    ),
];

/// Warns of settings with which a crash loses what was confirmed.
pub(crate) async fn warn_of_risks(client: &Client) -> Result<(), tokio_postgres::Error> {
    for (setting, meaning) in RISKS {
        let text = format!("select current_setting('{setting}')");
        if client.query_typed_one(&text, &[]).await?.get::<_, &str>(0) == "off" {
            tracing::warn!("the database has {setting} = off: {meaning}");
        }
    }
    Ok(())
}
