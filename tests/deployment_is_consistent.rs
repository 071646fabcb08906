//! `deploy/Dockerfile`, `deploy/compose.yaml` with what it mounts, `deploy/kubernetes` and the configurations of nginx: names,
//! ports, paths, settings and limits agree with each other and with the program.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::harness::{Setup, hubbub, hubbub_with, tool};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const DOCKERFILE: &str = include_str!("../deploy/Dockerfile");
const NGINX: &str = include_str!("../deploy/load-balancer.conf");
const PROXY: &str = include_str!("../deploy/nginx.conf");
const SCRAPES: &str = include_str!("../deploy/prometheus/prometheus.yml");
const DATA_SOURCE: &str = include_str!("../deploy/grafana/provisioning/datasources/prometheus.yaml");
const PROVIDER: &str = include_str!("../deploy/grafana/provisioning/dashboards/hubbub.yaml");

/// What stands behind a word that begins a line.
fn after<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.trim().strip_prefix(word)).map(str::trim).collect()
}

/// A duration of whole seconds or minutes, perhaps in quotes.
fn seconds(text: &str) -> u64 {
    let text = text.trim_matches('"');
    let minutes = text.strip_suffix("min").map(|minutes| minutes.parse::<u64>().unwrap() * 60);
    minutes.unwrap_or_else(|| text.strip_suffix('s').unwrap().parse().unwrap())
}

/// `NAME=value` of the image.
fn image_variables() -> BTreeMap<String, String> {
    let pairs = after(DOCKERFILE, "ENV ").into_iter().flat_map(str::split_whitespace);
    pairs.filter_map(|pair| pair.split_once('=')).map(|(name, value)| (name.into(), value.into())).collect()
}

/// The port that the server of the image listens on.
fn port() -> String {
    image_variables()["HUBBUB_LISTEN"].rsplit_once(':').unwrap().1.to_owned()
}

/// The compose file as its own implementation reads it; it must meet the schema.
fn compose() -> Option<Value> {
    let ran = tool("compose-spec")?
        .args(["-format", "json", "compose.yaml"])
        .current_dir(Path::new(ROOT).join("deploy"))
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    Some(serde_json::from_slice(&ran.stdout).unwrap())
}

/// The services of the server.
fn nodes(compose: &Value) -> BTreeMap<&str, &Value> {
    let services = compose["services"].as_object().unwrap().iter();
    services
        .filter(|(_, service)| service["image"] == "hubbub")
        .map(|(name, node)| (name.as_str(), node))
        .collect()
}

#[test]
fn the_image_runs_the_program_as_nobody() {
    let channel = include_str!("../rust-toolchain.toml");
    let version = after(DOCKERFILE, "FROM rust:")[0].split('-').next().unwrap();
    assert!(channel.contains(&format!("channel = \"{version}.")), "{version}");
    let [user] = after(DOCKERFILE, "USER ")[..] else { panic!("one user") };
    assert!(user.parse::<u32>().unwrap() > 0, "root");
    assert_eq!(after(DOCKERFILE, "EXPOSE "), [port()]);
    let data = &image_variables()["HUBBUB_DATA"];
    assert!(after(DOCKERFILE, "VOLUME ").iter().any(|volume| data.starts_with(volume)), "{data} is lost");
    assert_eq!(after(DOCKERFILE, "ENTRYPOINT "), ["[\"hubbub\"]"]);
    let [command] = after(DOCKERFILE, "CMD ")[..] else { panic!("one command") };
    let command: Vec<String> = serde_json::from_str(command).unwrap();
    assert_eq!(command, ["serve"]);
    let built = DOCKERFILE.split("--features ").nth(1).unwrap().split_whitespace().next().unwrap();
    let manifest = include_str!("../crates/hubbub/Cargo.toml");
    assert!(manifest.contains(&format!("\n{built} = [")), "{built} is no feature");
    let commit = after(DOCKERFILE, "ARG ")[0].split('=').next().unwrap();
    let build = include_str!("../crates/hubbub/build.rs");
    assert!(build.contains(&format!("env::var(\"{commit}\")")), "nothing reads {commit}");
}

#[test]
fn the_compose_file_agrees_with_the_program() {
    let Some(compose) = compose() else { return };
    let nodes = nodes(&compose);
    assert_eq!(nodes.len(), 3);
    let example = hubbub(&["config", "example"], "").success();
    for node in nodes.values() {
        assert_eq!((&node["read_only"], &node["cap_drop"][0]), (&Value::Bool(true), &"ALL".into()), "{node}");
        let mut variables = image_variables();
        for (name, value) in node["environment"].as_object().unwrap() {
            variables.insert(name.clone(), value.as_str().unwrap().to_owned());
        }
        // A program that was built without a broker or a database knows neither its URLs nor its settings.
        let knows = |scheme: &str| example.contains(&format!("{scheme}://"));
        variables.retain(|name, value| {
            let is_scylla = name.starts_with("HUBBUB_STORE_SCYLLA_");
            value.split_once("://").is_none_or(|(scheme, _)| knows(scheme)) && (!is_scylla || knows("scylla"))
        });
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        hubbub_with(&["config", "check"], &variables).success();
        let mut wrong = variables.clone();
        wrong.push(("HUBBUB_LISTEM", "0.0.0.0:1"));
        hubbub_with(&["config", "check"], &wrong).refusal(2);

        let session = node["environment"]["HUBBUB_KAFKA_SESSION_TIMEOUT"].as_str().unwrap();
        let broker = compose["services"]["redpanda"]["command"].to_string();
        let least = broker.split("group_min_session_timeout_ms=").nth(1).unwrap();
        let least: String = least.chars().take_while(char::is_ascii_digit).collect();
        let session = seconds(session);
        assert!(session * 1_000 >= least.parse().unwrap(), "{session} s, {least} ms");

        let drain = seconds(after(&example, "#drain_timeout = ")[0]);
        let grace = seconds(node["stop_grace_period"].as_str().unwrap());
        assert!(grace > drain, "{grace} s, {drain} s");
        assert!(node["ports"].is_null(), "only the load balancer is reached from outside");
        let context = Path::new(node["build"]["context"].as_str().unwrap());
        assert!(context.join(node["build"]["dockerfile"].as_str().unwrap()).is_file(), "{node}");
    }
}

#[test]
fn names_ports_and_paths_agree() {
    let Some(compose) = compose() else { return };
    let nodes: BTreeSet<String> = nodes(&compose).keys().map(|name| format!("{name}:{}", port())).collect();
    let balanced = after(NGINX, "server ").into_iter().filter(|server| *server != "{");
    let balanced: BTreeSet<String> = balanced.map(|one| one.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(balanced, nodes);
    let targets = after(SCRAPES, "- targets: ")[0].replace('\'', "\"");
    let targets: BTreeSet<String> = serde_json::from_str(&targets).unwrap();
    assert_eq!(targets, nodes);

    let services = compose["services"].as_object().unwrap();
    // Published here only: service, port inside, port outside.
    let published = services.iter().flat_map(|(name, service)| {
        service["ports"].as_array().into_iter().flatten().map(move |port| {
            assert_eq!(port["host_ip"], "127.0.0.1", "{name}");
            (name.as_str(), port["target"].as_u64().unwrap(), port["published"].as_str().unwrap())
        })
    });
    let published: BTreeSet<_> = published.collect();
    let wanted = [("balancer", 8080, "8080"), ("grafana", 3000, "3000"), ("prometheus", 9090, "9090")];
    assert_eq!(published, BTreeSet::from(wanted));
    assert_eq!(after(NGINX, "listen "), ["8080;"]);
    assert_eq!(after(DATA_SOURCE, "url: "), ["http://prometheus:9090"]);
    let mut mounted = BTreeMap::new();
    for service in services.values() {
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let (source, target) = (volume["source"].as_str().unwrap(), volume["target"].as_str().unwrap());
            if volume["type"] == "bind" {
                assert!(Path::new(source).exists() && volume["read_only"] == true, "{volume}");
                mounted.insert(target, source);
            }
        }
    }
    let folder = PROVIDER.split("path: ").nth(1).unwrap().split('}').next().unwrap();
    let home =
        services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"].as_str().unwrap();
    let file = home.strip_prefix(folder).unwrap().trim_start_matches('/');
    assert!(Path::new(mounted[folder]).join(file).is_file(), "{home}");
    // Brokers and databases that the servers name are services.
    for name in ["HUBBUB_STORE", "HUBBUB_LOG"] {
        let url = services["hubbub-1"]["environment"][name].as_str().unwrap();
        let host = url.split("://").nth(1).unwrap().split(':').next().unwrap();
        assert!(services.contains_key(host), "{url}");
        assert_eq!(services["hubbub-1"]["depends_on"][host]["condition"], "service_healthy");
        assert!(services[host]["healthcheck"].is_object(), "{host}");
    }
}

/// Whom servers believe where clients come from, what is passed on, and who ends a connection first.
#[test]
fn proxies_agree_with_the_program() {
    let example = hubbub(&["config", "example"], "").success();
    let default = |name: &str| seconds(after(&example, &format!("#{name} = "))[0]);
    for config in [NGINX, PROXY] {
        let value = |name: &str| seconds(after(config, name)[0].trim_end_matches(';'));
        assert!(value("keepalive_timeout ") < default("header_timeout"));
        assert!(value("proxy_read_timeout ") > 2 * default("ping_interval"));
    }
    let headers = |config| BTreeSet::from_iter(after(config, "proxy_set_header "));
    assert_eq!(headers(NGINX), headers(PROXY));
    let Some(compose) = compose() else { return };
    let subnet = compose["networks"]["default"]["ipam"]["config"][0]["subnet"].as_str().unwrap();
    let balancer = compose["services"]["balancer"]["networks"]["default"]["ipv4_address"].as_str().unwrap();
    let (network, _) = subnet.rsplit_once(".0/24").unwrap();
    assert_eq!(balancer.rsplit_once('.').unwrap().0, network);
    for node in nodes(&compose).values() {
        assert_eq!(node["environment"]["HUBBUB_SERVER_TRUSTED_PROXIES"], balancer);
    }
}

#[tokio::test]
async fn the_kubernetes_manifests_agree_with_the_program() {
    const MANIFESTS: &str = include_str!("../deploy/kubernetes/hubbub.yaml");
    if let Some(mut validate) = tool("kubectl-validate") {
        // Its schemas are built in; without a version it would ask a cluster.
        validate.args(["--version", "1.30", "deploy/kubernetes/hubbub.yaml"]).current_dir(ROOT);
        let ran = validate.output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
    }
    let flow = |word: &str| after(MANIFESTS, word).into_iter().map(|rest| rest.trim_end_matches('}'));
    assert_eq!(flow("- {name: http, containerPort: ").collect::<Vec<_>>(), [port()]);
    assert_eq!(flow("prometheus.io/port: ").map(|port| port.trim_matches('"')).collect::<Vec<_>>(), [port()]);
    assert_eq!(after(MANIFESTS, "runAsUser: "), after(DOCKERFILE, "USER "));
    let mut variables = image_variables();
    for variable in flow("- {name: HUBBUB_") {
        let (name, value) = variable.split_once(", value: ").unwrap();
        variables.insert(format!("HUBBUB_{name}"), value.trim_matches('"').to_owned());
    }
    let store = MANIFESTS.split("--from-literal=").nth(1).unwrap().lines().next().unwrap();
    let (name, url) = store.split_once('=').unwrap();
    variables.insert(name.to_owned(), url.to_owned());
    assert_eq!(variables.len(), 5, "{variables:?}");
    let variables: Vec<_> = variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    hubbub_with(&["config", "check"], &variables).success();
    let server = Setup::new().start();
    let paths = MANIFESTS.split("path: ").skip(1).map(|rest| rest.split([',', '\n']).next().unwrap());
    let paths: BTreeSet<&str> = paths.collect();
    assert_eq!(paths.len(), 3, "{paths:?}");
    for path in paths {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
}
