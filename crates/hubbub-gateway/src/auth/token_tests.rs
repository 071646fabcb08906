use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{EncodingKey, Header};
use serde_json::{Value, json};

use super::*;

const SECRET: &str = "a secret of thirty-two bytes, or more";
const NOW: i64 = 1_800_000_000;

fn now() -> Timestamp {
    Timestamp::from_micros(NOW * 1_000_000)
}

fn rules() -> TokenRules {
    TokenRules {
        audience: None,
        issuer: None,
        leeway: Duration::from_secs(30),
        max_lifetime: Duration::from_secs(86_400),
    }
}

fn verifier() -> Verifier {
    Verifier::new(rules(), Some(SECRET), None, false).unwrap()
}

fn sign(header: &Header, claims: &Value, key: &EncodingKey) -> String {
    jsonwebtoken::encode(header, claims, key).unwrap()
}

fn signed(claims: &Value) -> String {
    sign(&Header::new(Algorithm::HS256), claims, &EncodingKey::from_secret(SECRET.as_bytes()))
}

/// The claims with others set or, with `null`, removed.
fn with(changes: Value) -> Value {
    let mut claims = json!({"sub": "ada", "exp": NOW + 60, "rooms": {"*": "rw"}});
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

fn reason(verifier: &Verifier, token: &str) -> String {
    match verifier.verify(token, now()) {
        Ok(access) => panic!("{access:?}"),
        Err(Refused::Token(reason)) => reason,
        Err(other) => format!("{other:?}"),
    }
}

fn parts(header: &Value, claims: &Value, signature: &str) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.{signature}", part(header), part(claims))
}

#[test]
fn a_token_says_who_and_what() {
    let access = verifier().verify(&signed(&with(json!({"jti": "7", "iat": NOW - 5}))), now()).unwrap();
    assert_eq!(access.subject.as_ref().unwrap().as_str(), "ada");
    assert!(access.grants.has_room(crate::auth::Right::Write, "x") && !access.grants.is_admin);
    let expires_at = access.expires_at.unwrap();
    assert_eq!(expires_at.as_micros(), (NOW + 60) * 1_000_000, "as the token says");
    let after = |seconds| Timestamp::from_micros((NOW + 60 + seconds) * 1_000_000);
    assert!(!access.has_expired(after(29)) && access.has_expired(after(30)), "with tolerance");
    let issued_at = Some(Timestamp::from_micros((NOW - 5) * 1_000_000));
    assert_eq!(access.source, RightsSource::Token { id: Some("7".into()), issued_at });
    let admin = verifier().verify(&signed(&json!({"admin": true, "exp": NOW + 1})), now()).unwrap();
    assert!(admin.grants.is_admin && admin.subject.is_none());
}

#[test]
fn claims_are_required_and_checked() {
    let verifier = verifier();
    for (changes, expected) in [
        (json!({"exp": null}), "exp is missing"),
        (json!({"exp": NOW - 30}), "it has expired"),
        (json!({"exp": 0}), "it has expired"),
        (json!({"exp": -1e300}), "exp is no time"),
        (json!({"exp": 1e300}), "exp is no time"),
        (json!({"exp": NOW + 86_400 + 31}), "auth.max_lifetime (1d) from now"),
        // Not even once its end has come near.
        (json!({"exp": NOW + 60, "iat": NOW - 86_400}), "auth.max_lifetime (1d) from iat"),
        (json!({"nbf": NOW + 31}), "nbf"),
        (json!({"iat": NOW + 31}), "iat"),
        (json!({"sub": null}), "sub is missing"),
        (json!({"sub": ""}), "sub must be"),
        (json!({"sub": "a b"}), "sub must be"),
        (json!({"sub": "x".repeat(65)}), "sub must be"),
        (json!({"aud": "somebody"}), "aud"),
        (json!({"aud": []}), "aud"),
        (json!({"rooms": {"a*b": "rw"}}), "rooms: 'a*b'"),
        (json!({"jti": "x".repeat(257)}), "jti"),
        (json!({"exp": "soon"}), "cannot be read"),
        (json!({"sub": 7}), "cannot be read"),
        (json!({"admin": 1}), "cannot be read"),
    ] {
        let reason = reason(&verifier, &signed(&with(changes.clone())));
        assert!(reason.contains(expected), "{changes}: {reason}");
    }
}

#[test]
fn clocks_may_differ_by_the_leeway() {
    let verifier = verifier();
    for changes in [
        json!({"exp": NOW - 29}),
        json!({"nbf": NOW + 30}),
        json!({"iat": NOW + 30}),
        json!({"exp": NOW + 86_400 + 30}),
        json!({"exp": f64::from(i32::try_from(NOW).unwrap_or(i32::MAX)) + 0.5}),
    ] {
        assert!(verifier.verify(&signed(&with(changes.clone())), now()).is_ok(), "{changes}");
    }
    let strict = TokenRules { leeway: Duration::ZERO, ..rules() };
    let strict = Verifier::new(strict, Some(SECRET), None, false).unwrap();
    assert!(strict.verify(&signed(&with(json!({"exp": NOW}))), now()).is_err());
    assert!(strict.verify(&signed(&with(json!({"exp": NOW + 1}))), now()).is_ok());
}

#[test]
fn audience_and_issuer_must_be_those_of_the_server() {
    let named = TokenRules { audience: Some("chat".into()), issuer: Some("idp".into()), ..rules() };
    let verifier = Verifier::new(named, Some(SECRET), None, false).unwrap();
    for (changes, is_fine) in [
        (json!({"aud": "chat", "iss": "idp"}), true),
        (json!({"aud": ["mail", "chat"], "iss": "idp"}), true),
        (json!({"aud": ["mail"], "iss": "idp"}), false),
        (json!({"aud": "chat2", "iss": "idp"}), false),
        (json!({"iss": "idp"}), false),
        (json!({"aud": "chat", "iss": "other"}), false),
        (json!({"aud": "chat"}), false),
    ] {
        let verified = verifier.verify(&signed(&with(changes.clone())), now());
        assert_eq!(verified.is_ok(), is_fine, "{changes}");
    }
}

#[test]
fn what_is_not_signed_is_refused() {
    let verifier = verifier();
    let claims = with(json!({}));
    let good = signed(&claims);
    let (message, signature) = good.rsplit_once('.').unwrap();
    let (header, _) = message.split_once('.').unwrap();
    let other = URL_SAFE_NO_PAD.encode(with(json!({"sub": "eve"})).to_string());
    for (token, what) in [
        (parts(&json!({"alg": "none", "typ": "JWT"}), &claims, ""), "none"),
        (parts(&json!({"alg": "None"}), &claims, ""), "None"),
        (parts(&json!({"alg": "nOnE"}), &claims, signature), "nOnE"),
        (parts(&json!({"typ": "JWT"}), &claims, signature), "no algorithm"),
        (parts(&json!({"alg": "HS256"}), &claims, ""), "an empty signature"),
        (format!("{message}."), "no signature"),
        (message.to_owned(), "two parts"),
        (format!("{good}.x"), "four parts"),
        (format!("{header}.{other}.{signature}"), "other claims"),
        (format!("{message}.{}", &signature[..signature.len() - 2]), "a shorter signature"),
        (sign(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(b"x")), "another secret"),
        (
            sign(&Header::new(Algorithm::HS384), &claims, &EncodingKey::from_secret(SECRET.as_bytes())),
            "HS384",
        ),
        (
            sign(&Header::new(Algorithm::HS512), &claims, &EncodingKey::from_secret(SECRET.as_bytes())),
            "HS512",
        ),
        (String::new(), "nothing"),
        ("...".into(), "dots"),
        ("\u{fc}.a.b".into(), "no base64"),
        ("a".repeat(TOKEN_BYTES_MAX + 1), "a huge one"),
    ] {
        reason(&verifier, &token);
        assert!(verifier.verify(&token, now()).is_err(), "{what}");
    }
    let critical = Header { crit: Some(vec!["b64".into()]), ..Header::new(Algorithm::HS256) };
    let token = sign(&critical, &claims, &EncodingKey::from_secret(SECRET.as_bytes()));
    assert_eq!(reason(&verifier, &token), "crit is not supported");
    let large = signed(&with(json!({"rooms": {"x".repeat(TOKEN_BYTES_MAX): "r"}})));
    assert!(reason(&verifier, &large).contains("bytes"));
}

#[test]
fn short_secrets_are_refused() {
    for secret in ["", "short", &"x".repeat(31)] {
        let error = Verifier::new(rules(), Some(secret), None, false).err().unwrap();
        assert!(error.contains("at least 32 bytes") && !error.contains(&format!("'{secret}'")), "{error}");
    }
    assert!(mint(&Claims::default(), "short").is_err());
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n"))
}

struct Pair {
    algorithm: Algorithm,
    private: EncodingKey,
    public: String,
    jwk: Value,
}

/// A pair of each kind.
fn pairs() -> [Pair; 3] {
    let random = aws_lc_rs::rand::SystemRandom::new();
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
    let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
    let ed = Pair {
        algorithm: Algorithm::EdDSA,
        private: EncodingKey::from_ed_der(pkcs8.as_ref()),
        public: pem(pair.public_key().as_der().unwrap().as_ref()),
        jwk: json!({"kty": "OKP", "crv": "Ed25519", "x": encode(pair.public_key().as_ref())}),
    };
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref()).unwrap();
    let point = pair.public_key().as_ref();
    let ec = Pair {
        algorithm: Algorithm::ES256,
        private: EncodingKey::from_ec_der(pkcs8.as_ref()),
        public: pem(pair.public_key().as_der().unwrap().as_ref()),
        jwk: json!({"kty": "EC", "crv": "P-256", "x": encode(&point[1..33]), "y": encode(&point[33..])}),
    };
    let pair = aws_lc_rs::rsa::KeyPair::generate(KeySize::Rsa2048).unwrap();
    let pkcs8: aws_lc_rs::encoding::Pkcs8V1Der<'_> = pair.as_der().unwrap();
    let private = pem(pkcs8.as_ref()).replace("PUBLIC", "PRIVATE");
    let public = pair.public_key();
    let rsa = Pair {
        algorithm: Algorithm::RS256,
        private: EncodingKey::from_rsa_pem(private.as_bytes()).unwrap(),
        public: pem(AsDer::<aws_lc_rs::encoding::PublicKeyX509Der<'_>>::as_der(public).unwrap().as_ref()),
        jwk: json!({"kty": "RSA", "n": encode(public.modulus().big_endian_without_leading_zero()),
            "e": encode(public.exponent().big_endian_without_leading_zero())}),
    };
    [ed, ec, rsa]
}

#[test]
fn each_kind_of_public_key_verifies_its_own_algorithm() {
    let pairs = pairs();
    for pair in &pairs {
        let verifier = Verifier::new(rules(), None, Some(pair.public.as_bytes()), false).unwrap();
        for other in &pairs {
            let token = sign(&Header::new(other.algorithm), &with(json!({})), &other.private);
            let is_fine = verifier.verify(&token, now()).is_ok();
            assert_eq!(
                is_fine,
                other.algorithm == pair.algorithm,
                "{:?} {:?}",
                pair.algorithm,
                other.algorithm
            );
        }
        // What is public is no secret, however it is written.
        for secret in [pair.public.as_str(), pair.public.trim()] {
            let secret = EncodingKey::from_secret(secret.as_bytes());
            let token = sign(&Header::new(Algorithm::HS256), &with(json!({})), &secret);
            assert!(verifier.verify(&token, now()).is_err(), "{:?}", pair.algorithm);
        }
    }
    let [_, ec, _] = &pairs;
    let both = Verifier::new(rules(), Some(SECRET), Some(ec.public.as_bytes()), false).unwrap();
    assert!(both.verify(&signed(&with(json!({}))), now()).is_ok());
    assert!(both.verify(&sign(&Header::new(Algorithm::ES256), &with(json!({})), &ec.private), now()).is_ok());
}

#[test]
fn what_is_no_public_key_is_refused() {
    for pem in ["", "x", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"] {
        assert!(Verifier::new(rules(), None, Some(pem.as_bytes()), false).is_err(), "{pem}");
    }
    let private = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let error = Verifier::new(rules(), None, Some(private), false).err().unwrap();
    assert!(error.contains("private key"), "{error}");
}

#[test]
fn key_sets_have_keys_by_their_ids() {
    let [ed, ec, rsa] = pairs();
    let verifier = Verifier::new(rules(), None, None, true).unwrap();
    let token = |pair: &Pair, id: Option<&str>| {
        let header = Header { kid: id.map(str::to_owned), ..Header::new(pair.algorithm) };
        sign(&header, &with(json!({})), &pair.private)
    };
    assert_eq!(verifier.verify(&token(&ed, Some("1")), now()), Err(Refused::NoKeys));
    let named = |pair: &Pair, id: &str, more: Value| {
        let mut jwk = pair.jwk.clone();
        jwk["kid"] = id.into();
        for (name, value) in more.as_object().unwrap() {
            jwk[name] = value.clone();
        }
        jwk
    };
    let set = json!({"keys": [
        named(&ed, "1", json!({"use": "sig", "alg": "EdDSA"})),
        named(&ec, "2", json!({})),
        // Of no use here: for encryption, of another algorithm, a secret, a kind nobody knows.
        named(&rsa, "3", json!({"use": "enc"})),
        named(&rsa, "4", json!({"alg": "RS512"})),
        {"kty": "oct", "kid": "5", "k": URL_SAFE_NO_PAD.encode(SECRET)},
        {"kty": "new", "kid": "6"},
    ]});
    verifier.replace_set(set.to_string().as_bytes()).unwrap();
    assert!(verifier.verify(&token(&ed, Some("1")), now()).is_ok());
    assert!(verifier.verify(&token(&ed, None), now()).is_ok(), "any of its algorithm");
    assert!(verifier.verify(&token(&ec, Some("2")), now()).is_ok());
    assert_eq!(verifier.verify(&token(&ed, Some("2")), now()), Err(Refused::UnknownKey));
    assert_eq!(verifier.verify(&token(&rsa, Some("3")), now()), Err(Refused::UnknownKey));
    assert!(verifier.verify(&signed(&with(json!({}))), now()).is_err(), "a set has no secrets");
    // Rotated: the old key is gone.
    verifier.replace_set(json!({"keys": [named(&rsa, "7", json!({}))]}).to_string().as_bytes()).unwrap();
    assert!(verifier.verify(&token(&rsa, Some("7")), now()).is_ok());
    assert_eq!(verifier.verify(&token(&ed, Some("1")), now()), Err(Refused::UnknownKey));
    // What is no set leaves the keys there are.
    for text in ["", "{}", "[]", r#"{"keys":[]}"#, r#"{"keys":[{"kty":"oct","k":"AAAA"}]}"#] {
        assert!(verifier.replace_set(text.as_bytes()).is_err(), "{text}");
    }
    assert!(verifier.verify(&token(&rsa, Some("7")), now()).is_ok());
}

proptest::proptest! {
    #[test]
    fn any_text_is_refused(token in "\\PC{0,80}|([A-Za-z0-9_-]{0,20}\\.){0,4}") {
        proptest::prop_assert!(verifier().verify(&token, now()).is_err());
    }
}
