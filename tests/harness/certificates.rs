//! Certificates for servers that speak TLS.

/// Makes, in the current directory, an authority (`ca.pem`) and a certificate of it for `localhost`, or for the names in the
/// variable `NAMES` (`server.crt`, `server.key`); for `bash -e`.
pub(crate) const MAKE_CERTIFICATES: &str = "
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem
    openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr
    echo subjectAltName=${NAMES:-DNS:localhost} >server.ext
    openssl x509 -req -days 2 -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile server.ext -out server.crt
    chmod 600 server.key";
