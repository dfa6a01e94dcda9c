//! `GET /v1/policies/current`, `GET /v1/policies/{type}/{version}`: texts to read before they are accepted (L-1, L-3).

use std::sync::Arc;

use axum::{Json, extract::State};
use kukuri_control::{
    Refused,
    policy::{self, PolicyText, PolicyType, PolicyVersion},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    Api, ApiState,
    answer::Page,
    error::{Error, ErrorBody, RequiredPolicy},
    extract::{Path, Query, shortened},
};

#[derive(Serialize, ToSchema)]
pub(crate) struct PolicyItem {
    /// `terms`, `privacy` or `rules`; rules are not accepted.
    #[serde(rename = "type")]
    policy_type: &'static str,
    version: String,
    /// The language of this text.
    locale: String,
    title: String,
    /// BLAKE3 of the text, in hex: what is accepted.
    content_hash: String,
    /// The text as a page for people.
    url: String,
    published_at: u64,
    effective_at: u64,
    /// The text in Markdown; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    content_md: Option<String>,
}

impl PolicyItem {
    fn of(api: &Api, text: PolicyText) -> Self {
        Self {
            policy_type: text.of.policy_type.name(),
            url: format!("{}?locale={}", url_of(api, &text.of), text.locale),
            version: text.of.version,
            locale: text.locale,
            title: text.title,
            content_hash: text.content_hash,
            published_at: text.published_at.unwrap_or_default().0,
            effective_at: text.effective_at.unwrap_or_default().0,
            content_md: None,
        }
    }
}

impl RequiredPolicy {
    pub(crate) fn of(api: &Api, policy: &PolicyVersion) -> Self {
        let (policy_type, version) = (policy.policy_type.name(), policy.version.clone());
        Self { policy_type, version, url: url_of(api, policy) }
    }
}

/// Where a version is read.
pub(crate) fn url_of(api: &Api, policy: &PolicyVersion) -> String {
    api.http_url(&format!("/v1/policies/{}/{}", policy.policy_type, policy.version))
}

/// The texts of the policies in effect, in all languages.
#[utoipa::path(get, path = "/v1/policies/current", responses(
    (status = 200, description = "All texts, on one page.", body = Page<PolicyItem>),
))]
pub(crate) async fn list_current_policies(State(api): State<Arc<ApiState>>) -> Result<Json<Page<PolicyItem>>, Error> {
    let texts = policy::current_texts(api.control.database(), api.now()).await?;
    let items = texts.into_iter().map(|text| PolicyItem::of(&api, text)).collect();
    Ok(Json(Page { items, cursor: None }))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PolicyParameters {
    /// The language, such as `ja` or `en-GB`; without it, or if there is no such text, the closest.
    locale: Option<String>,
}

/// A version of a policy, published to take effect now or later, or in effect earlier.
#[utoipa::path(get, path = "/v1/policies/{type}/{version}",
    params(
        ("type" = String, Path, description = "`terms`, `privacy` or `rules`."),
        ("version" = String, Path, description = "The version."),
        PolicyParameters,
    ),
    responses(
        (status = 200, description = "The text.", body = PolicyItem),
        (status = 404, description = "There is no such version, or it is not published.", body = ErrorBody),
    ))]
pub(crate) async fn read_policy(
    State(api): State<Arc<ApiState>>,
    Path((policy_type, version)): Path<(String, String)>,
    Query(parameters): Query<PolicyParameters>,
) -> Result<Json<PolicyItem>, Error> {
    let unknown = || Refused::UnknownPolicy { policy_type: shortened(&policy_type), version: shortened(&version) };
    let of = PolicyVersion::new(PolicyType::of_name(&policy_type).ok_or_else(unknown)?, &version)?;
    let found = policy::read(api.control.database(), &of, parameters.locale.as_deref()).await?;
    let (text, content_md) = found.filter(|(text, _)| text.published_at.is_some()).ok_or_else(unknown)?;
    Ok(Json(PolicyItem { content_md: Some(content_md), ..PolicyItem::of(&api, text) }))
}
