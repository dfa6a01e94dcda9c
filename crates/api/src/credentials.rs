//! The caller of a request: the header `Authorization`, and what is known of the person it names.
//!
//! - `Bearer <access token>`: the node made the token when the person signed in.
//! - `Nostr <base64 of an event>`: the person signed this very request (NIP-98). A key without an account gets one by it where the
//!   route needs one: proving to own the key is what signing in does.

use axum::{
    body::Body,
    extract::{FromRequestParts, Request},
    http::{HeaderMap, header, request::Parts},
};
use data_encoding::{BASE64, HEXLOWER};
use kukuri_control::{
    Refused, sign_in,
    token::{self, Claims},
};
use kukuri_domain::{
    Event, PublicKey, Timestamp,
    authentication::{SignedRequest, check_request},
};
use sha2::{Digest, Sha256};

use crate::{
    Api,
    error::{Error, RequiredPolicy},
    extract::read_body,
    gate::{Access, Identity, RouteCost},
};

/// Seconds for which a signed request is remembered: longer than it is timely, by clocks that differ a little.
const USED_REQUEST_TTL: u64 = 300;
/// A longer event is no signature of a request.
const MAX_ENCODED_EVENT_LEN: usize = 16 << 10;

/// A proof of a key that was checked.
enum Proof {
    Token(Claims),
    Request(PublicKey),
}

impl Proof {
    fn key(&self) -> PublicKey {
        match self {
            Self::Token(claims) => claims.sub,
            Self::Request(key) => *key,
        }
    }
}

/// The token of a request that has one. An extension of the request.
#[derive(Clone)]
pub(crate) struct Session(pub(crate) Claims);

/// The caller's key. Refuses callers that have not authenticated.
pub(crate) struct Caller(pub(crate) PublicKey);

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        match Identity::from_request_parts(parts, state).await? {
            Identity::Person(key) => Ok(Self(key)),
            Identity::Anonymous => Err(Error::AuthRequired),
        }
    }
}

/// Finds out the caller of a request, and whether the caller may use a route (U-3). Puts the [`Identity`] into the request. `access`: what
/// the route asks for now ([`Access::now`]).
pub(crate) async fn authenticate(
    api: &Api,
    request: Request,
    access: Access,
    cost: RouteCost,
) -> Result<Request, Error> {
    let (request, proof) = check_header(api, request).await?;
    let (parts, body) = request.into_parts();
    if let Some(proof) = &proof {
        api.gate.admit_key(&proof.key(), cost)?;
        check_account(api, proof, access, cost, &parts).await?;
    }
    let mut request = Request::from_parts(parts, body);
    if let Some(proof) = &proof {
        request.extensions_mut().insert(Identity::Person(proof.key()));
    }
    match (access, proof.as_ref().map(Proof::key)) {
        (Access::Own | Access::Account | Access::Member, None) => return Err(Error::AuthRequired),
        (Access::Member, Some(key)) => check_consents(api, &key)?,
        _ => {}
    }
    if let Some(Proof::Token(claims)) = proof {
        request.extensions_mut().insert(Session(claims));
    }
    Ok(request)
}

/// Checks the header `Authorization`, if there is one.
async fn check_header(api: &Api, request: Request) -> Result<(Request, Option<Proof>), Error> {
    let Some((scheme, value)) = authorization(request.headers())? else { return Ok((request, None)) };
    if scheme.eq_ignore_ascii_case("bearer") {
        let claims = token::check(&api.control.secrets(), &api.http_url(""), value, api.now())?;
        api.control.people().check_token(&claims)?;
        return Ok((request, Some(Proof::Token(claims))));
    }
    if scheme.eq_ignore_ascii_case("nostr") {
        let event = decode_event(value)?;
        let (request, key) = check_signed(api, &event, request).await?;
        return Ok((request, Some(Proof::Request(key))));
    }
    Err(Error::auth_failed("`Authorization` is `Bearer <access token>` or `Nostr <base64 of an event>`"))
}

/// Scheme and value of the header.
fn authorization(headers: &HeaderMap) -> Result<Option<(&str, &str)>, Error> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let Some(header) = all.next() else { return Ok(None) };
    let text = header.to_str().ok().filter(|_| all.next().is_none());
    let parts = text.and_then(|text| text.trim().split_once(' '));
    let (scheme, value) = parts.ok_or_else(|| Error::auth_failed("the header `Authorization` is malformed"))?;
    Ok(Some((scheme, value.trim())))
}

fn decode_event(encoded: &str) -> Result<Event, Error> {
    let json = Some(encoded).filter(|encoded| encoded.len() <= MAX_ENCODED_EVENT_LEN);
    let json = json.and_then(|encoded| BASE64.decode(encoded.as_bytes()).ok());
    let json = json.ok_or_else(|| Error::auth_failed("`Authorization: Nostr` has no base64 of an event"))?;
    Event::from_json(json).map_err(|refusal| Error::auth_failed(format_args!("the event is malformed: {refusal}")))
}

/// Checks that an event signs this request, and that it does so for the first time.
async fn check_signed(api: &Api, event: &Event, request: Request) -> Result<(Request, PublicKey), Error> {
    let (parts, body) = request.into_parts();
    let body = read_body(Request::from_parts(parts.clone(), body), &()).await?;
    let payload = (!body.is_empty()).then(|| HEXLOWER.encode(&Sha256::digest(&body)));
    let path_and_query = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let signed = SignedRequest { method: parts.method.as_str(), path_and_query, payload: payload.as_deref() };
    let key = check_request(event, &signed, &(api.relay_urls)(), (api.clock)()).map_err(Error::auth_failed)?;
    let (now, credential) = (api.now(), format!("nip98:{}", event.id));
    let expires_at = Timestamp(now.0 + USED_REQUEST_TTL);
    if !sign_in::use_once(api.control.database(), &credential, expires_at, now).await? {
        return Err(Error::auth_failed("this event was used before; sign another one"));
    }
    Ok((Request::from_parts(parts, Body::from(body)), key))
}

/// Checks that the person has an account that is served. Where a route is open to everybody, a signed request needs none.
async fn check_account(api: &Api, proof: &Proof, access: Access, cost: RouteCost, parts: &Parts) -> Result<(), Error> {
    let (key, now) = (proof.key(), api.now());
    let people = api.control.people();
    let check = || match access {
        Access::Own => people.check_account(&key),
        _ => people.check_served(&key, now),
    };
    match check() {
        Err(Refused::UnknownAccount) => {}
        known => return Ok(known?),
    }
    let secrets = api.control.secrets();
    match (proof, access) {
        (Proof::Request(_), Access::Own | Access::Account | Access::Member) => {
            if cost != RouteCost::SignIn {
                api.gate.admit_first_visit(parts)?;
            }
            sign_in::first_visit(api.control.database(), &secrets, &key, None, now).await?;
        }
        (Proof::Request(_), _) => {
            if people.has_nameless_bans() {
                people.check_nameless_bans(&secrets.pseudonyms(&key), now)?;
            }
            return Ok(());
        }
        // Another node on the database may have made the account a moment ago.
        (Proof::Token(_), _) => {}
    }
    api.control.refresh(now).await?;
    Ok(check()?)
}

fn check_consents(api: &Api, key: &PublicKey) -> Result<(), Error> {
    if api.control.people().has_consented(key) { Ok(()) } else { Err(consent_required(api, key)) }
}

/// The refusal of a person who has not accepted the policies in effect.
pub(crate) fn consent_required(api: &Api, key: &PublicKey) -> Error {
    let required = api.control.people().missing_consents(key);
    Error::ConsentRequired { required: required.iter().map(|policy| RequiredPolicy::of(api, policy)).collect() }
}
