//! `POST /v1/invites/redeem`: an account by an invite, for clients that sign each request.

use std::sync::Arc;

use axum::{Json, extract::State};
use kukuri_control::sign_in;
use kukuri_domain::PublicKey;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    ApiState,
    credentials::Caller,
    error::{Error, ErrorBody},
    extract::Json as JsonBody,
};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Redemption {
    invite_code: String,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Redeemed {
    #[schema(value_type = String)]
    pubkey: PublicKey,
    /// `active`
    status: &'static str,
}

/// Makes the caller's account with an invite. The request is signed (NIP-98). A caller that has an account keeps the invite.
#[utoipa::path(post, path = "/v1/invites/redeem", request_body = Redemption, responses(
    (status = 200, description = "The caller has an account.", body = Redeemed),
    (status = 410, description = "The account is being deleted.", body = ErrorBody),
))]
pub(crate) async fn redeem_invite(
    State(api): State<Arc<ApiState>>,
    Caller(pubkey): Caller,
    JsonBody(body): JsonBody<Redemption>,
) -> Result<Json<Redeemed>, Error> {
    let (database, secrets, now) = (api.control.database(), api.control.secrets(), api.now());
    sign_in::first_visit(database, &secrets, &pubkey, Some(&body.invite_code), now).await?;
    api.control.refresh(now).await?;
    Ok(Json(Redeemed { pubkey, status: "active" }))
}
