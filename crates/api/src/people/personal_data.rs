//! `/v1/personal-data-export-requests`, `/v1/personal-data-deletion-requests`: a copy of the caller's data, and the deletion of the account
//! (N-1, N-2). Both are possible without consent, and for an account that is disabled or banned.

use std::sync::Arc;

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{Method, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use kukuri_control::{
    Control, Error as ControlError, Refused,
    personal_data::{
        deletion::{self, Deletion},
        export::{self, Export},
    },
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    ApiState,
    answer::Page,
    credentials::Caller,
    cursor::{RequestPlace, is_uuid},
    error::{Error, ErrorBody},
    extract::{Json as JsonBody, PageLimit, Path, Query},
};

type Limit = PageLimit<50, 200>;

#[derive(Serialize, ToSchema)]
pub(crate) struct ExportItem {
    export_request_id: String,
    /// `queued`, `running`, `completed`, `failed` or `cancelled`.
    status: &'static str,
    created_at: u64,
    /// For the download, once; only in the answer to the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    download_token: Option<String>,
    /// Until then it can be downloaded; there when it is completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    download_expires_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    downloaded_at: Option<u64>,
    /// Of the archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

impl From<Export> for ExportItem {
    fn from(export: Export) -> Self {
        Self {
            export_request_id: export.id,
            status: export.status.name(),
            created_at: export.created_at.0,
            download_token: None,
            download_expires_at: export.download_expires_at.map(|time| time.0),
            downloaded_at: export.downloaded_at.map(|time| time.0),
            bytes: export.bytes,
        }
    }
}

fn read_id<'t>(parameter: &str, text: &'t str) -> Result<&'t str, Error> {
    Some(text).filter(|text| is_uuid(text)).ok_or_else(|| Error::invalid_parameter(parameter, "is not an id"))
}

/// Asks for an archive of everything that the node has of the caller: one at a time, three in 24 hours.
#[utoipa::path(post, path = "/v1/personal-data-export-requests", responses(
    (status = 200, description = "The export, which is made in the background, with the token for its download.", body = ExportItem),
))]
pub(crate) async fn request_export(
    State(api): State<Arc<ApiState>>,
    Caller(person): Caller,
) -> Result<Json<ExportItem>, Error> {
    let (database, secrets) = (api.control.database(), api.control.secrets());
    let (export, token) = export::create(database, &secrets, &person, api.now()).await?;
    Ok(Json(ExportItem { download_token: Some(token), ..export.into() }))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExportsParameters {
    /// Exports on a page; clamped.
    #[serde(default)]
    #[param(schema_with = Limit::schema, required = false)]
    limit: Limit,
    /// The `cursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<RequestPlace>,
}

/// The caller's exports, the oldest first.
#[utoipa::path(get, path = "/v1/personal-data-export-requests", params(ExportsParameters), responses(
    (status = 200, description = "A page of exports.", body = Page<ExportItem>),
))]
pub(crate) async fn list_exports(
    State(api): State<Arc<ApiState>>,
    Caller(person): Caller,
    Query(parameters): Query<ExportsParameters>,
) -> Result<Json<Page<ExportItem>>, Error> {
    let limit = parameters.limit.0;
    let after = parameters.cursor.map(|place| (place.created_at, place.id));
    // One more than asked for tells whether there is another page.
    let mut found = export::list(api.control.database(), &person, after, limit + 1).await?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().filter(|_| has_more);
    let cursor = last.map(|last| RequestPlace { created_at: last.created_at, id: last.id.clone() }.to_string());
    Ok(Json(Page { items: found.into_iter().map(ExportItem::from).collect(), cursor }))
}

/// An export of the caller.
#[utoipa::path(get, path = "/v1/personal-data-export-requests/{export_request_id}",
    params(("export_request_id" = String, Path, description = "Its id.")),
    responses(
        (status = 200, description = "The export.", body = ExportItem),
        (status = 404, description = "There is no such export of the caller.", body = ErrorBody),
    ))]
pub(crate) async fn read_export(
    State(api): State<Arc<ApiState>>,
    Caller(person): Caller,
    Path(id): Path<String>,
) -> Result<Json<ExportItem>, Error> {
    let found = export::find(api.control.database(), &person, read_id("export_request_id", &id)?).await?;
    Ok(Json(found.ok_or(Refused::UnknownExport)?.into()))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DownloadParameters {
    /// The `download_token`.
    token: String,
}

/// The archive, once. The token is enough: a browser can follow the link.
#[utoipa::path(get, path = "/v1/personal-data-export-requests/{export_request_id}/download",
    params(("export_request_id" = String, Path, description = "The export's id."), DownloadParameters),
    responses(
        (status = 200, description = "A zip of files with one JSON object per line.", body = Vec<u8>, content_type = "application/zip"),
        (status = 404, description = "There is no such export with this token.", body = ErrorBody),
        (status = 409, description = "The export is not completed.", body = ErrorBody),
        (status = 410, description = "It was downloaded already, or has expired.", body = ErrorBody),
    ))]
pub(crate) async fn download_export(
    State(api): State<Arc<ApiState>>,
    method: Method,
    Path(id): Path<String>,
    Query(parameters): Query<DownloadParameters>,
) -> Result<Response, Error> {
    let id = read_id("export_request_id", &id)?;
    // A look at the headers must not use up the token.
    if method == Method::HEAD {
        return Err(Error::MethodNotAllowed);
    }
    let bytes = export::begin_download(api.control.database(), id, &parameters.token, api.now()).await?;
    let download = Download { control: Arc::clone(&api.control), id: id.to_owned(), part: 0, left: bytes };
    let headers = [
        (header::CONTENT_TYPE, "application/zip".to_owned()),
        (header::CONTENT_LENGTH, bytes.to_string()),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"personal-data.zip\"".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    Ok((headers, Body::from_stream(stream::try_unfold(download, Download::next))).into_response())
}

/// A download in progress. It holds one part in memory at a time.
struct Download {
    control: Arc<Control>,
    id: String,
    part: u64,
    /// Bytes that were not read yet.
    left: u64,
}

impl Download {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, ControlError> {
        if self.left == 0 {
            return Ok(None);
        }
        let read = self.read().await;
        let content = read.inspect_err(|error| tracing::error!(%error, "the download of an export broke off"))?;
        Ok(Some((content, self)))
    }

    async fn read(&mut self) -> Result<Bytes, ControlError> {
        let database = self.control.database();
        let content = export::read_part(database, &self.id, self.part).await?;
        let content = content.ok_or_else(|| ControlError::Damaged(format!("export {} has lost a part", self.id)))?;
        self.part += 1;
        self.left = self.left.saturating_sub(content.len() as u64);
        if self.left == 0 {
            // After the last bytes of an answer nothing is asked for any more.
            export::remove_parts(database, &self.id).await?;
        }
        Ok(content.into())
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewDeletion {
    /// Whether the caller's events on this node go as well, and are kept out from then on.
    #[serde(default)]
    include_events: bool,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct DeletionItem {
    deletion_request_id: String,
    /// `queued`, `running`, `completed` or `failed`.
    status: &'static str,
    include_events: bool,
    created_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<u64>,
    /// To read this when there is no account any more; only in the answer to the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt_token: Option<String>,
}

impl From<Deletion> for DeletionItem {
    fn from(deletion: Deletion) -> Self {
        Self {
            deletion_request_id: deletion.id,
            status: deletion.status.name(),
            include_events: deletion.include_events,
            created_at: deletion.created_at.0,
            completed_at: deletion.completed_at.map(|time| time.0),
            receipt_token: None,
        }
    }
}

/// Deletes the caller's account. Tokens and subscriptions end at once; the rest is done in the background.
#[utoipa::path(post, path = "/v1/personal-data-deletion-requests", request_body = NewDeletion, responses(
    (status = 200, description = "The deletion, which can't be taken back, with its receipt.", body = DeletionItem),
))]
pub(crate) async fn request_deletion(
    State(api): State<Arc<ApiState>>,
    Caller(person): Caller,
    JsonBody(body): JsonBody<NewDeletion>,
) -> Result<Json<DeletionItem>, Error> {
    let (database, secrets, now) = (api.control.database(), api.control.secrets(), api.now());
    let (deletion, receipt) = deletion::request(database, &secrets, &person, body.include_events, now).await?;
    api.control.refresh(now).await?;
    Ok(Json(DeletionItem { receipt_token: Some(receipt), ..deletion.into() }))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ReceiptParameters {
    /// The `receipt_token`.
    token: String,
}

/// The state of a deletion. The receipt is enough: there may be no account any more.
#[utoipa::path(get, path = "/v1/personal-data-deletion-requests/{deletion_request_id}",
    params(("deletion_request_id" = String, Path, description = "Its id."), ReceiptParameters),
    responses(
        (status = 200, description = "The deletion.", body = DeletionItem),
        (status = 404, description = "There is no such deletion with this receipt.", body = ErrorBody),
    ))]
pub(crate) async fn read_deletion(
    State(api): State<Arc<ApiState>>,
    Path(id): Path<String>,
    Query(parameters): Query<ReceiptParameters>,
) -> Result<Json<DeletionItem>, Error> {
    let id = read_id("deletion_request_id", &id)?;
    let found = deletion::find(api.control.database(), id, &parameters.token).await?;
    Ok(Json(found.ok_or(Refused::UnknownDeletion)?.into()))
}
