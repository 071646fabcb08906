//! nginx with the configurations in `deploy/`, in which only addresses and paths are other ones.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Certificates, free_ports, or_skip, until};

/// Where Debian's package puts it, which is not on everybody's path.
const PROGRAM: &str = "/usr/sbin/nginx";
const LOAD_BALANCER: &str = include_str!("../../deploy/load-balancer.conf");
const PROXY: &str = include_str!("../../deploy/nginx.conf");

/// Ended and removed with this.
pub(crate) struct Nginx {
    child: Child,
    address: SocketAddr,
    dir: TempDir,
}

/// Whether it is installed. Under `CI=true` it must be.
pub(crate) fn has_nginx() -> bool {
    or_skip(Path::new(PROGRAM).exists(), "no nginx here; scripts/services/install.sh installs it")
}

/// The text with every `from` replaced, which must be there.
fn replace(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "the configuration has no {from}");
    text.replace(from, to)
}

impl Nginx {
    /// `deploy/load-balancer.conf` before these servers, with each of `changes` (what, by what).
    pub(crate) async fn balancing(servers: [SocketAddr; 3], changes: &[(&str, &str)]) -> Self {
        Self::start(|dir, address| {
            let mut config = replace(LOAD_BALANCER, "/tmp/", &format!("{dir}/"));
            config = replace(&config, "listen 8080;", &format!("listen {address};"));
            for (number, server) in servers.iter().enumerate() {
                config = replace(&config, &format!("hubbub-{}:8080", number + 1), &server.to_string());
            }
            changes.iter().fold(config, |config, (from, to)| replace(&config, from, to))
        })
        .await
    }

    /// `deploy/nginx.conf` before a server, as the only site of an nginx, with a certificate for `localhost`.
    pub(crate) async fn with_tls(server: SocketAddr, certificates: &Certificates) -> Self {
        Self::start(|dir, address| {
            let mut site = replace(PROXY, "127.0.0.1:8080", &server.to_string());
            site = replace(&site, "listen 443 ssl;", &format!("listen {address} ssl;"));
            site = replace(&site, "/etc/ssl/chat.example.pem", &certificates.path("server.crt"));
            site = replace(&site, "/etc/ssl/chat.example.key", &certificates.path("server.key"));
            let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .map(|name| format!("{name}_temp_path {dir}/{name};\n"))
                .concat();
            format!("pid {dir}/nginx.pid;\nevents {{}}\nhttp {{\naccess_log off;\n{paths}{site}}}\n")
        })
        .await
    }

    /// With what `config` makes of a directory and an address of its own.
    async fn start(config: impl FnOnce(&str, SocketAddr) -> String) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_ports(1)));
        let dir = tempfile::Builder::new().prefix("hubbub-nginx-").tempdir().unwrap();
        let (file, errors) = (dir.path().join("nginx.conf"), dir.path().join("error.log"));
        std::fs::write(&file, config(dir.path().to_str().unwrap(), address)).unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("-p").arg(dir.path()).arg("-c").arg(file).arg("-e").arg(&errors);
        // Started by root, its workers would be somebody who cannot reach the directory.
        command.args(["-g", "daemon off; user root;"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut nginx = Self { child, address, dir };
        until("nginx listens", async || {
            let ended = nginx.child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", std::fs::read_to_string(&errors).unwrap_or_default());
            TcpStream::connect(address).is_ok()
        })
        .await;
        nginx
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it complained about.
    pub(crate) fn errors(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("error.log")).unwrap()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its workers end with it, which a kill would prevent.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}
