use std::io::Write;

use super::values::SettingValue;
use super::*;

fn load_with(file: &str, environment: &[(&str, &str)], flags: ServeArgs) -> Result<Config, ConfigError> {
    let mut path = std::env::temp_dir();
    path.push(format!("hubbub-config-{}-{:x}.toml", std::process::id(), file.len() * 31 + environment.len()));
    std::fs::File::create(&path).unwrap().write_all(file.as_bytes()).unwrap();
    let variables = environment.iter().map(|(name, value)| (name.into(), value.into()));
    let environment = Environment::of(variables).unwrap();
    let result = load(&ServeArgs { config: Some(path.clone()), ..flags }, &environment);
    std::fs::remove_file(path).unwrap();
    result
}

#[test]
fn flags_win_over_environment_over_file() {
    let file =
        "[server]\nlisten = '1.1.1.1:1'\nthreads = 3\n[limits]\nmessage_bytes = '128KiB'\nsubscriptions = 7";
    let environment = [("HUBBUB_LISTEN", "2.2.2.2:2"), ("HUBBUB_LIMITS_MESSAGE_BYTES", "256KiB")];
    let flags = ServeArgs { listen: Some("3.3.3.3:3".into()), ..ServeArgs::default() };
    let config = load_with(file, &environment, flags).unwrap();
    assert_eq!((&**config.listen, *config.threads, config.message_bytes.0), ("3.3.3.3:3", 3, 256 << 10));
    assert_eq!(*config.subscriptions, 7);
}

#[test]
fn every_fault_is_named_with_its_place() {
    let error = load_with(
        "[server]\nlisen = 'x'\nthreads = 'many'\n[limits]\nbody_bytes = [1]",
        &[("HUBBUB_LIMITS_SUBSCRIPTIONS", "-1"), ("HUBBUB_LISTN", "127.0.0.1:80")],
        ServeArgs { set: vec!["rooms.autocreate".into(), "rooms.auto=1".into()], ..ServeArgs::default() },
    )
    .unwrap_err();
    let all = error.0.join("\n");
    for part in [
        "no setting 'server.lisen'; did you mean 'server.listen'?",
        "server.threads must be a whole number from 0 on, not 'many' (file ",
        "limits.body_bytes must be a string, a number or a boolean",
        "limits.subscriptions must be a whole number from 0 on, not '-1' (environment HUBBUB_LIMITS_SUBSCRIPTIONS)",
        "environment: there is no setting HUBBUB_LISTN; did you mean HUBBUB_LISTEN?",
        "--set rooms.autocreate: must be KEY=VALUE",
        "--set: there is no setting 'rooms.auto'; did you mean",
    ] {
        assert!(all.contains(part), "{part} not in:\n{all}");
    }
}

#[test]
fn shares_are_numbers_or_texts() {
    let parse = |share: &str| {
        let config = load_with(&format!("[telemetry.otlp]\nsample = {share}"), &[], ServeArgs::default());
        config.map(|config| (config.otlp_sample.0, config.otlp_sample.show()))
    };
    for (share, millionths, shown) in [
        ("0", 0, "0.0"),
        ("1", 1_000_000, "1.0"),
        ("1.0", 1_000_000, "1.0"),
        ("0.25", 250_000, "0.25"),
        ("'0.000001'", 1, "0.000001"),
        ("1e-6", 1, "0.000001"),
    ] {
        assert_eq!(parse(share).unwrap(), (millionths, shown.to_owned()), "{share}");
    }
    for share in ["2", "1.000001", "-0.5", "0.0000001", "'.5'", "'a'", "''", "'1.'", "nan", "'99999999999'"] {
        assert!(parse(share).unwrap_err().0[0].contains("must be a share from 0 to 1"), "{share}");
    }
}

#[test]
fn contradictions_are_refused() {
    let error =
        load_with("[limits]\nmessage_bytes = '2MiB'\n[store]\nurl = 'mysql://x'", &[], ServeArgs::default());
    let faults = error.unwrap_err().0;
    assert!(
        faults.len() == 2 && faults[0].starts_with("store.url") && faults[1].starts_with("limits.body_bytes")
    );
}

/// A topic that keeps records for less is refused, so none is made.
#[cfg(feature = "kafka")]
#[test]
fn a_topic_keeps_records_for_an_hour_at_least() {
    let load = |retention: &str| {
        let retention = format!("kafka.retention={retention}");
        load_with("", &[], settings(&["log.url=kafka://b:1", "store.url=postgres://db/hubbub", &retention]))
    };
    let faults = load("59min").unwrap_err().0;
    assert!(faults.len() == 1 && faults[0].starts_with("kafka.retention must be at least 1h"), "{faults:?}");
    load("1h").unwrap();
}

fn settings(pairs: &[&str]) -> ServeArgs {
    ServeArgs { set: pairs.iter().map(|pair| (*pair).to_owned()).collect(), ..ServeArgs::default() }
}

/// What a server is refused for, and commands that serve nothing are not.
fn refused_to_serve(loaded: Result<Config, ConfigError>) -> Vec<String> {
    loaded.unwrap().check_server().unwrap_err().0
}

/// What protects nothing is not accepted as if it did.
#[cfg(all(feature = "kafka", feature = "amqp", feature = "scylla", feature = "postgres"))]
#[test]
fn settings_that_would_protect_nothing_are_refused() {
    let scylla = "store.url=scylla://db/hubbub";
    let (kafka, postgres) = ("log.url=kafka://b:1", "store.url=postgres://db/hubbub");
    let cases = [
        (&["tls.client_auth=required"][..], "tls.client_auth = required needs tls.client_ca"),
        (&[kafka, "kafka.ca=x"], "kafka.ca needs log.url = kafkas://"),
        (&[kafka, "kafka.cert=x", "kafka.key=y"], "kafka.cert needs log.url = kafkas://"),
        (&["log.url=amqp://b:1/", "amqp.ca=x"], "amqp.ca needs log.url = amqps://"),
        (&[scylla, kafka, "store.scylla.ca=x"], "store.scylla.ca needs store.url = scyllas://"),
        (&[postgres, "store.embedded.retention=1d"], "store.embedded.retention is for the embedded store"),
        (&["store.postgres.retention=1d"], "store.postgres.retention is for PostgreSQL"),
        (&[postgres, "store.scylla.retention=1d"], "store.scylla.retention is for Cassandra"),
    ];
    for (pairs, rule) in cases {
        let faults = refused_to_serve(load_with("", &[], settings(pairs)));
        assert!(faults.iter().any(|fault| fault.contains(rule)), "{pairs:?}: {faults:?}");
    }
    for pairs in [
        &["tls.client_auth=required", "tls.client_ca=off"][..],
        &[postgres, "log.url=kafkas://b:1", "kafka.ca=x"],
        // It is not in use, and so is nothing that it would protect.
        &["kafka.ca=x"],
        &[postgres, "store.postgres.retention=1d", "store.embedded.retention=off"],
        &["store.embedded.retention=1d"],
    ] {
        load_with("", &[], settings(pairs)).unwrap().check_server().unwrap();
    }
}

#[cfg(feature = "postgres")]
#[test]
fn a_directory_on_the_command_line_is_not_passed_over() {
    let load = |store: &str, flags: ServeArgs| load_with("", &[("HUBBUB_STORE", store)], flags);
    let data = || ServeArgs { data: Some("new".into()), ..ServeArgs::default() };
    for (store, shown) in
        [("embedded:old", "embedded:old"), ("postgres://a:s3cret@db/hubbub", "postgres://a:***@db/hubbub")]
    {
        let faults = refused_to_serve(load(store, data()));
        let told = format!("--data new is not used: store.url is {shown} (environment HUBBUB_STORE)");
        assert!(faults.len() == 1 && faults[0].starts_with(&told), "{faults:?}");
        // A variable or a file beside it is what units and images have.
        load_with(
            "[store]\ndata = 'new'",
            &[("HUBBUB_STORE", store), ("HUBBUB_DATA", "x")],
            ServeArgs::default(),
        )
        .unwrap()
        .check_server()
        .unwrap();
    }
    let served_from = |config: Config| {
        config.check_server().unwrap();
        config.data_dir().to_owned()
    };
    for store in ["embedded", "embedded:new", "embedded:"] {
        assert_eq!(served_from(load(store, data()).unwrap()), "new");
    }
    let flag = ServeArgs { store: Some("embedded".into()), ..data() };
    assert_eq!(served_from(load("postgres://db/hubbub", flag).unwrap()), "new");
}

/// `config check` says of nothing that it is valid which `serve` refuses.
#[cfg(all(feature = "kafka", feature = "scylla"))]
#[test]
fn what_a_server_would_be_refused_for_is_found_before() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let empty = file.path().display().to_string();
    let (cert, key) = (format!("tls.cert={empty}"), format!("tls.key={empty}"));
    let jwks = format!("auth.jwks={empty}");
    for (pairs, parts) in [
        (&["server.listen=0.0.0.0:8080"][..], &["server.listen 0.0.0.0 can be reached"][..]),
        (&["server.line=[::]:1"], &["server.line :: can be reached"]),
        (&["store.url=scylla://db/hubbub"], &["requires --log kafka://", "store.url", "log.url"]),
        (&["log.url=kafka://b:1"], &["requires --store postgres://", "store.url", "log.url"]),
        (&["store.scylla.retention=1d"], &["store.scylla.retention is for Cassandra"]),
        (&[&cert, &key], &["tls.cert", "no certificate in PEM"]),
        (&["tls.cert=/no/such.pem", "tls.key=/no/such.pem"], &["tls.cert: cannot read /no/such.pem"]),
        (&["auth.jwks=/no/such.json", "auth.audience=x"], &["auth.jwks: /no/such.json"]),
        (&[&jwks, "auth.audience=x"], &["auth.jwks"]),
    ] {
        let config = load_with("", &[], settings(pairs)).unwrap();
        let faults = serving::check(&config).unwrap_err().0;
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(parts.iter().all(|part| faults[0].contains(part)), "{pairs:?}: {faults:?}");
    }
    for pairs in [
        &["server.listen=0.0.0.0:8080", "server.insecure=true"][..],
        &["server.listen=127.0.0.1:8080"],
        // Only the machine that serves knows what it stands for.
        &["server.listen=chat.example:8080"],
    ] {
        serving::check(&load_with("", &[], settings(pairs)).unwrap()).unwrap();
    }
}

/// What the example shows is what the program has, and reading it back changes nothing.
#[test]
fn the_example_file_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hubbub.example.toml");
    let example = command::example();
    assert_eq!(
        std::fs::read_to_string(path).unwrap(),
        example,
        "run: hubbub config example > hubbub.example.toml"
    );
    let active = example.lines().map(|l| if l.starts_with("# ") { "" } else { l.trim_start_matches('#') });
    let config = load_with(&active.collect::<Vec<_>>().join("\n"), &[], ServeArgs::default()).unwrap();
    let defaults = Config::from_written(&WrittenSettings::new(), &mut Vec::new());
    for setting in SETTINGS {
        assert_eq!((setting.show)(&config), (setting.show)(&defaults), "{}", setting.key);
    }
}
