//! The systemd units are understood by systemd, and start what their environment files say: no flag of theirs wins over it.

use std::path::PathBuf;
use std::process::Command;

use crate::harness::{or_skip, program};

/// The values of a unit's lines with this name, in their order.
fn lines<'a>(unit: &'a str, name: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect()
}

fn unit(name: &str) -> String {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy")).join(name);
    std::fs::read_to_string(path).unwrap()
}

/// Runs the binary as the unit would, with `command` in the place of its own one, and what its environment file says.
fn run(unit: &str, own: &str, command: &[&str], file: &[(&str, &str)]) -> String {
    let start = lines(unit, "ExecStart");
    let [start] = start.as_slice() else { panic!("one ExecStart: {start:?}") };
    let flags = start.strip_prefix("/usr/local/bin/hubbub ").unwrap().strip_prefix(own).unwrap();
    let mut program = program::command();
    program.args(command).args(flags.split_whitespace());
    // systemd lets a file win over these lines.
    program.envs(lines(unit, "Environment").into_iter().map(|line| line.split_once('=').unwrap()));
    let ran = program.envs(file.iter().copied()).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

/// No line is misspelt, and the services may do little (the exposure that `systemd-analyze security` computes, in tenths).
#[test]
fn systemd_understands_the_units() {
    const EXPOSURE_MAX: &str = "20";
    let run = |arguments: &[&str], files: &[PathBuf]| {
        let mut command = Command::new("systemd-analyze");
        command.args(["--no-pager"]).args(arguments).args(files).output()
    };
    let is_there = run(&["--version"], &[]).is_ok();
    if !or_skip(is_there, "no systemd-analyze here; scripts/services/install.sh installs it") {
        return;
    }
    // It looks for the programs that they name.
    let binary = program::command().get_program().to_str().unwrap().to_owned();
    let dir = tempfile::tempdir().unwrap();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    let names: Vec<_> = names.filter(|name| name.ends_with(".service") || name.ends_with(".timer")).collect();
    let copies: Vec<_> = names.iter().map(|name| dir.path().join(name)).collect();
    for (name, copy) in names.iter().zip(&copies) {
        std::fs::write(copy, unit(name).replace("/usr/local/bin/hubbub", &binary)).unwrap();
    }
    let verified = run(&["verify", "--man=no"], &copies).unwrap();
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && said.is_empty(), "{said}");
    for service in copies.iter().filter(|copy| copy.extension().is_some_and(|ending| ending == "service")) {
        let threshold = format!("--threshold={EXPOSURE_MAX}");
        let checked =
            run(&["security", "--offline=true", &threshold], std::slice::from_ref(service)).unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    }
}

#[test]
fn the_server_listens_where_its_environment_file_says() {
    let unit = unit("hubbub.service");
    assert_eq!(lines(&unit, "EnvironmentFile"), ["-/etc/hubbub/hubbub.env"]);
    let print = |file: &[(&str, &str)]| run(&unit, "serve", &["config", "print"], file);
    let text = print(&[]);
    assert!(text.contains("data = \"/var/lib/hubbub/data\"  # environment HUBBUB_DATA\n"), "{text}");
    assert!(text.contains("listen = \"127.0.0.1:8080\"\n"), "{text}");
    let text = print(&[("HUBBUB_LISTEN", "127.0.0.1:9"), ("HUBBUB_DATA", "/srv/hubbub")]);
    assert!(text.contains("listen = \"127.0.0.1:9\"  # environment HUBBUB_LISTEN\n"), "{text}");
    assert!(text.contains("data = \"/srv/hubbub\"  # environment HUBBUB_DATA\n"), "{text}");
}

/// What the environment of the backup units can set is set by no flag.
#[test]
fn backups_are_made_of_the_server_that_the_environment_names() {
    for name in ["hubbub-backup.service", "hubbub-restore-check.service"] {
        let unit = unit(name);
        assert_eq!(lines(&unit, "EnvironmentFile"), ["-/etc/hubbub/backup.env"]);
        assert!(lines(&unit, "ExecStart").iter().all(|start| !start.contains("--server")), "{name}");
    }
}
