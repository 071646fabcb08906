//! Settings from the environment. Unknown variables are refused, like unknown keys of the file.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::setting::{Setting, variable_of};
use super::suggestion::{endings, suggestion};
use super::{ConfigError, SETTINGS, Source, Written, WrittenSettings};

/// Prefix of this program's variables.
const PREFIX: &str = "HUBBUB_";
/// The variable that names the configuration file.
pub(super) const CONFIG: &str = "HUBBUB_CONFIG";
/// Variables of client commands.
const CLIENT: &[&str] = &["HUBBUB_SERVER", "HUBBUB_USER", "HUBBUB_TOKEN"];
/// Variables of builds and tests.
const FOREIGN: &[&str] = &["HUBBUB_BIN", "HUBBUB_COMMIT"];
/// Prefixes of variables of tests and of the load generator.
const FOREIGN_PREFIXES: &[&str] = &["HUBBUB_TEST_", "HUBBUB_BENCH_"];

/// The variables that begin with `HUBBUB_`, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Environment(BTreeMap<String, String>);

impl Environment {
    /// The environment of this process.
    pub(crate) fn of_process() -> Result<Self, ConfigError> {
        Self::of(std::env::vars_os())
    }

    /// The variables with this program's prefix. Refuses values that are not UTF-8.
    pub(super) fn of(variables: impl Iterator<Item = (OsString, OsString)>) -> Result<Self, ConfigError> {
        let (mut found, mut faults) = (BTreeMap::new(), Vec::new());
        for (name, value) in variables {
            let name = name.to_string_lossy().into_owned();
            if !name.starts_with(PREFIX) {
                continue;
            }
            match value.into_string() {
                Ok(value) => drop(found.insert(name, value)),
                Err(_) => faults.push(format!("environment: the value of {name} is not UTF-8")),
            }
        }
        if faults.is_empty() { Ok(Self(found)) } else { Err(ConfigError(faults)) }
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Refuses unknown variables, for commands that read no settings.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let mut faults = Vec::new();
        self.read(&mut WrittenSettings::new(), &mut faults);
        if faults.is_empty() { Ok(()) } else { Err(ConfigError(faults)) }
    }

    /// Adds settings to `written`, and errors of unknown variables to `faults`.
    pub(super) fn read(&self, written: &mut WrittenSettings, faults: &mut Vec<String>) {
        let names: Vec<String> = SETTINGS.iter().map(Setting::environment_name).collect();
        for (name, value) in &self.0 {
            let known = SETTINGS.iter().zip(&names).find(|(_, known)| *known == name);
            if let Some((setting, _)) = known {
                let source = Source::Environment(name.clone());
                written.insert(setting.key, Written { value: value.clone(), source });
            } else if !is_foreign(name, value) {
                let suggestion = suggestion(bare(name), known_names());
                faults.push(format!("environment: there is no setting {name}{suggestion}"));
            }
        }
    }
}

/// A variable's name without what all of them begin with.
fn bare(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}

/// Names that may be meant, [`bare`], and the variables they lead to: the long form of a setting that has a short one, or a
/// part of it, leads to that.
fn known_names() -> impl Iterator<Item = (String, String)> {
    let settings = SETTINGS.iter().flat_map(|setting| {
        let meant = setting.environment_name();
        let names = [meant.clone()].into_iter().chain(endings(setting.key).map(variable_of));
        names.map(move |name| (name, meant.clone()))
    });
    let others = [CONFIG].into_iter().chain(CLIENT.iter().copied());
    let all = settings.chain(others.map(|name| (name.to_owned(), name.to_owned())));
    all.map(|(name, meant)| (bare(&name).to_owned(), meant))
}

/// Whether a variable that is no setting belongs to another program.
fn is_foreign(name: &str, value: &str) -> bool {
    name == CONFIG
        || CLIENT.contains(&name)
        || FOREIGN.contains(&name)
        || FOREIGN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || is_service_link(name, value)
}

/// Whether the variable is one of those that Kubernetes and Docker set for a service named `hubbub…`, such as
/// `HUBBUB_SERVICE_HOST=10.0.0.1`, `HUBBUB_PORT=tcp://10.0.0.1:80` and `HUBBUB_PORT_80_TCP_ADDR=10.0.0.1`.
fn is_service_link(name: &str, value: &str) -> bool {
    let has_port_number = || {
        let mut rests = name.split("_PORT_").skip(1);
        rests.any(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || (name.ends_with("_PORT") && value.contains("://"))
        || has_port_number()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(variables: &[(&str, &str)]) -> Vec<String> {
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        let environment = Environment::of(variables).unwrap();
        let (mut written, mut faults) = (WrittenSettings::new(), Vec::new());
        environment.read(&mut written, &mut faults);
        faults
    }

    #[test]
    fn a_variable_that_names_no_setting_is_refused_with_a_suggestion() {
        for (name, meant) in [
            ("HUBBUB_LISTN", "HUBBUB_LISTEN"),
            ("HUBBUB_LIMIT_MESSAGE_BYTES", "HUBBUB_LIMITS_MESSAGE_BYTES"),
            ("HUBBUB_CONFIGS", "HUBBUB_CONFIG"),
            ("HUBBUB_SERVR", "HUBBUB_SERVER"),
            // The long form of a setting that has a short one.
            ("HUBBUB_SERVER_LISTEN", "HUBBUB_LISTEN"),
            ("HUBBUB_MESSAGE_BYTES", "HUBBUB_LIMITS_MESSAGE_BYTES"),
        ] {
            let faults = faults_of(&[(name, "9000")]);
            assert_eq!(faults.len(), 1, "{name}");
            let text = format!("environment: there is no setting {name}; did you mean {meant}?");
            assert_eq!(faults[0], text);
        }
        let faults = faults_of(&[("HUBBUB_PORT", "9000")]);
        assert!(!faults[0].contains("did you mean"), "nothing is near: {faults:?}");
    }

    #[test]
    fn variables_of_clients_tools_and_containers_are_ignored() {
        let variables = [
            ("HUBBUB_CONFIG", "/etc/hubbub.toml"),
            ("HUBBUB_SERVER", "http://127.0.0.1:8080"),
            ("HUBBUB_USER", "ada"),
            ("HUBBUB_TEST_POSTGRES", "postgres://x"),
            ("HUBBUB_BENCH_DATABASE", "postgres://x"),
            ("HUBBUB_SERVICE_HOST", "10.0.0.1"),
            ("HUBBUB_SERVICE_PORT", "8080"),
            ("HUBBUB_SERVICE_PORT_HTTP", "8080"),
            ("HUBBUB_PORT", "tcp://10.0.0.1:8080"),
            ("HUBBUB_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
            ("HUBBUB_PORT_8080_TCP_ADDR", "10.0.0.1"),
            ("HUBBUB_INTERNAL_SERVICE_HOST", "10.0.0.1"),
            ("PATH", "/bin"),
        ];
        assert_eq!(faults_of(&variables), Vec::<String>::new());
    }

    #[cfg(unix)]
    #[test]
    fn a_value_that_is_not_utf8_is_refused() {
        use std::os::unix::ffi::OsStringExt;
        let variable = ("HUBBUB_DATA".into(), OsString::from_vec(vec![0xFF]));
        let error = Environment::of([variable].into_iter()).unwrap_err();
        assert_eq!(error.0, ["environment: the value of HUBBUB_DATA is not UTF-8"]);
    }
}
