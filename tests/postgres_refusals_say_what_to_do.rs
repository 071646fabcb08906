//! A database that cannot be used is named in one line that says what to do, and shows no password.

use crate::harness::{MAKE_CERTIFICATES, Postgres, Setup, hubbub_aside, until};

const PASSWORD: &str = "geheim-4711";

/// Starts a server, which must refuse with `code` and say all of `words`, and nothing of any password.
async fn refused(code: i32, store: &str, more: &[&str], words: &[&str]) {
    let mut arguments = vec!["serve", "--listen", "127.0.0.1:0", "--store", store];
    arguments.extend(more);
    let arguments = arguments.into_iter().map(str::to_owned).collect();
    let said = hubbub_aside(arguments, String::new()).await.refusal(code);
    for word in words {
        assert!(said.contains(word), "{word} not in {said}");
    }
    assert!(!said.contains(PASSWORD) && !said.contains("geheim"), "{said}");
}

#[tokio::test]
async fn urls_that_cannot_be() {
    let with = |rest: &str| format!("postgres://ada:{PASSWORD}@{rest}");
    refused(2, &with("127.0.0.1:many/chat"), &[], &["store.url", "`port`", "postgres://user:password@host"])
        .await;
    refused(2, &with("geheim@127.0.0.1/chat"), &[], &["store.url", "%40"]).await;
    refused(2, &with("db/chat?sslmode=verify-full"), &[], &["`sslmode`"]).await;
    let more = ["--set", "store.postgres.migrate_url=mysql://ada:geheim-4711@db/x"];
    refused(2, &with("db/chat"), &more, &["store.postgres.migrate_url"]).await;
    let replicas = [
        ("mysql://ada:geheim-4711@db/x", "each with one host"),
        ("postgres://ada:geheim-4711@db1,db2/x", "each with one host"),
        ("postgres://db1/x,postgres://ada:geheim-4711@db2:many/x", "number 2: it cannot be read"),
        ("postgres://ada:geheim-4711@/x", "number 1: it must name one host"),
        ("postgres://db1/x,postgres://ada:geheim-4711@db1:5432/y", "number 2: db1:5432 is named twice"),
    ];
    for (urls, words) in replicas {
        let more = ["--set", &format!("store.postgres.replicas={urls}")];
        refused(2, &with("db/chat"), &more, &["store.postgres.replicas", words]).await;
    }
    let more = ["--set", "store.postgres.replica_lag=0s"];
    refused(2, &with("db/chat"), &more, &["store.postgres.replica_lag", "longer than 0"]).await;
    refused(1, &with("127.0.0.1:1/chat"), &[], &["127.0.0.1:1/chat", "refused", "host and port"]).await;
    refused(1, &with("no.such.host.invalid/chat"), &[], &["no.such.host.invalid", "the host's name"]).await;
}

#[tokio::test]
async fn servers_that_refuse() {
    let postgres = Postgres::start("password_encryption = 'scram-sha-256'");
    let hba =
        "host all ada 127.0.0.1/32 scram-sha-256\nlocal all all trust\nhost all all 127.0.0.1/32 trust\n";
    std::fs::write(postgres.home().join("data/pg_hba.conf"), hba).unwrap();
    postgres.run(&format!("create role ada login password '{PASSWORD}'")).await;
    postgres.run("create database chat owner ada").await;
    postgres.run("create role poor login; select pg_reload_conf()").await;
    let port = postgres.port;
    let as_ada = |password: &str| format!("postgres://ada:{password}@127.0.0.1:{port}/chat");

    refused(1, &as_ada("geheim-wrong"), &[], &["password authentication failed", "check user and password"])
        .await;
    refused(1, &format!("postgres://ada@127.0.0.1:{port}/chat"), &[], &["password", "store.url"]).await;
    refused(1, &postgres.url("none"), &[], &["\"none\" does not exist", "createdb"]).await;
    let poor = format!("postgres://poor@127.0.0.1:{port}/chat");
    refused(1, &poor, &[], &["permission denied", "grant it the right to create tables"]).await;
    refused(1, &as_ada(PASSWORD), &["--no-migrate"], &["version 0", "hubbub migrate", "--no-migrate"]).await;
    let more = ["--set", "store.postgres.pooler=transaction"];
    refused(1, &as_ada(PASSWORD), &more, &["store.postgres.migrate_url"]).await;

    // With all that is right it starts; from then on the schema is there, and no migration is needed.
    let mut server = Setup::new().store(&as_ada(PASSWORD)).start();
    server.stop().await;
    let mut server = Setup::new().store(&as_ada(PASSWORD)).set("store.postgres.migrate=false").start();
    server.stop().await;
    let newer = "insert into refinery_schema_history (version, name, applied_on, checksum) values (999, 'x', '', '0')";
    postgres.connect("chat").await.batch_execute(newer).await.unwrap();
    refused(1, &as_ada(PASSWORD), &[], &["version 999", "run the newer hubbub"]).await;
}

#[tokio::test]
async fn tls_is_used_and_certificates_are_checked() {
    let postgres = Postgres::start("");
    let at = |host: &str| format!("postgres://postgres@{host}:{}/postgres?sslmode=require", postgres.port);
    refused(1, &at("localhost"), &[], &["does not support TLS", "sslmode=disable"]).await;

    let make = format!("{MAKE_CERTIFICATES}\n mv server.crt server.key data");
    postgres.script(&["run", "bash", "-ec", &make]);
    postgres.run("alter system set ssl = on").await;
    postgres.run("select pg_reload_conf()").await;
    until("TLS", async || postgres.query("postgres", "show ssl").await == "on").await;
    refused(1, &at("localhost"), &[], &["certificate", "store.postgres.ca"]).await;
    let ca = postgres.home().join("ca.pem").display().to_string();
    let trusted = format!("store.postgres.ca={ca}");
    // The authority is trusted, but the certificate is not for this name.
    refused(1, &at("127.0.0.1"), &["--set", &trusted], &["certificate", "store.postgres.ca"]).await;
    let none = ["--set", "store.postgres.ca=/no/such/file.pem"];
    refused(1, &at("localhost"), &none, &["store.postgres.ca", "/no/such/file.pem"]).await;

    let server = Setup::new().store(&at("localhost")).set(&trusted).start();
    let encrypted = "select count(*) from pg_stat_ssl s join pg_stat_activity a using (pid) \
                     where s.ssl and a.application_name = 'hubbub'";
    assert_ne!(postgres.query("postgres", encrypted).await, "0");
    drop(server);
}

/// Without the password in what it shows, wherever the URL came from.
#[tokio::test]
async fn the_configuration_hides_passwords() {
    let url = format!("postgres://ada:{PASSWORD}@db/chat");
    let migrate = format!("store.postgres.migrate_url={url}");
    let replicas = format!("store.postgres.replicas={url},postgres://db2/chat?password={PASSWORD}&user=ada");
    let arguments = ["config", "print", "--store", &url, "--set", &migrate, "--set", &replicas];
    let shown = hubbub_aside(arguments.map(str::to_owned).into(), String::new()).await.success();
    assert!(shown.contains("url = \"postgres://ada:***@db/chat\""), "{shown}");
    let replicas = "postgres://ada:***@db/chat,postgres://db2/chat?password=***&user=ada";
    assert!(shown.contains(replicas), "{shown}");
    assert!(!shown.contains(PASSWORD), "{shown}");
}
