//! `/v1/topic-subscription-requests`: asking for a topic (S-1, S-2, S-6).

use std::{collections::BTreeSet, sync::Arc};

use axum::{Json, extract::State};
use kukuri_control::{
    Refused,
    request::{self, NewRequest, Service, TopicRequest},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::names_of;
use crate::{
    Api, ApiState,
    answer::Page,
    credentials::Caller,
    cursor::{RequestPlace, is_uuid},
    error::{Error, ErrorBody},
    extract::{Json as JsonBody, PageLimit, Path, Query, shortened},
};

type Limit = PageLimit<50, 200>;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTopicRequest {
    /// The topic, by its id or its name.
    topic_id: Option<String>,
    /// The topic's name; with `topic_id`, the name has to be that topic's.
    topic_name: Option<String>,
    /// What is asked for beside the relay, of the services that the node runs: `index`, `moderation`, `trust`.
    #[serde(default)]
    requested_services: Vec<String>,
    /// Why, for the reviewer.
    reason: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct TopicRequestItem {
    request_id: String,
    requester_pubkey: String,
    topic_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic_name: Option<String>,
    /// The relay first.
    requested_services: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// `pending`, `approved` (the node is about to take the topic in), `rejected`, `active` or `cancelled`.
    status: &'static str,
    /// What the reviewer says.
    #[serde(skip_serializing_if = "Option::is_none")]
    review_note: Option<String>,
    created_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reviewed_at: Option<u64>,
}

impl From<TopicRequest> for TopicRequestItem {
    fn from(request: TopicRequest) -> Self {
        Self {
            request_id: request.id,
            requester_pubkey: request.requester.to_string(),
            topic_id: request.topic.to_string(),
            topic_name: request.topic_name,
            requested_services: names_of(&request.services),
            reason: request.reason,
            status: request.status.name(),
            review_note: request.review_note,
            created_at: request.created_at.0,
            reviewed_at: request.reviewed_at.map(|time| time.0),
        }
    }
}

impl NewTopicRequest {
    fn read(self, api: &Api) -> Result<NewRequest, Error> {
        let (topic, topic_name) = match (&self.topic_id, &self.topic_name) {
            (None, None) => return Err(Error::invalid_parameter("topic_id", "is required, or `topic_name`")),
            (Some(id), None) => api.read_named_topic("topic_id", id)?,
            (None, Some(name)) => api.read_named_topic("topic_name", name)?,
            (Some(id), Some(name)) => {
                let topic = api.read_topic("topic_id", id)?;
                let (named, name) = api.read_named_topic("topic_name", name)?;
                if named != topic {
                    return Err(Error::invalid_parameter("topic_name", "is not the name of this `topic_id`"));
                }
                (topic, name)
            }
        };
        if topic.is_global() {
            return Err(Error::invalid_parameter("topic_id", "is a topic that everybody has"));
        }
        if api.forbidden_topics.contains(topic.as_str()) {
            return Err(Error::invalid_parameter("topic_id", "is a topic that this node does not carry"));
        }
        Ok(NewRequest {
            topic,
            topic_name,
            services: read_services(api, &self.requested_services)?,
            reason: self.reason,
        })
    }
}

fn read_services(api: &Api, names: &[String]) -> Result<Vec<Service>, Error> {
    let mut services = Vec::new();
    for name in names {
        let service = Service::of_name(name).filter(|of| *of == Service::Relay || api.services.contains(of));
        let Some(service) = service else {
            let run: BTreeSet<&str> = names_of(&api.services).into_iter().chain([Service::Relay.name()]).collect();
            let run = run.into_iter().collect::<Vec<_>>().join(", ");
            let reason = format!("there is no service `{}`; this node runs {run}", shortened(name));
            return Err(Error::invalid_parameter("requested_services", reason));
        };
        if !services.contains(&service) {
            services.push(service);
        }
    }
    Ok(services)
}

fn read_id(text: &str) -> Result<&str, Error> {
    Some(text)
        .filter(|text| is_uuid(text))
        .ok_or_else(|| Error::invalid_parameter("request_id", "is not a request's id"))
}

/// Asks for a topic. A topic that the caller asked for or has already is answered with that request.
#[utoipa::path(post, path = "/v1/topic-subscription-requests", request_body = NewTopicRequest, responses(
    (status = 200, description = "The request.", body = TopicRequestItem),
    (status = 402, description = "The caller's plan has no room for another topic.", body = ErrorBody),
))]
pub(crate) async fn create_topic_request(
    State(api): State<Arc<ApiState>>,
    Caller(person): Caller,
    JsonBody(body): JsonBody<NewTopicRequest>,
) -> Result<Json<TopicRequestItem>, Error> {
    let asked = body.read(&api)?;
    let made = request::create(api.control.database(), &person, &asked, api.request_limits, api.now()).await?;
    Ok(Json(made.into()))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct TopicRequestsParameters {
    /// Requests on a page; clamped.
    #[serde(default)]
    #[param(schema_with = Limit::schema, required = false)]
    limit: Limit,
    /// The `cursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<RequestPlace>,
}

/// The caller's requests, the oldest first.
#[utoipa::path(get, path = "/v1/topic-subscription-requests", params(TopicRequestsParameters), responses(
    (status = 200, description = "A page of requests.", body = Page<TopicRequestItem>),
))]
pub(crate) async fn list_topic_requests(
    State(api): State<Arc<ApiState>>,
    Caller(person): Caller,
    Query(parameters): Query<TopicRequestsParameters>,
) -> Result<Json<Page<TopicRequestItem>>, Error> {
    let limit = parameters.limit.0;
    let after = parameters.cursor.map(|place| (place.created_at, place.id));
    // One more than asked for tells whether there is another page.
    let mut found = request::list(api.control.database(), Some(&person), None, after, limit + 1).await?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().filter(|_| has_more);
    let cursor = last.map(|last| RequestPlace { created_at: last.created_at, id: last.id.clone() }.to_string());
    Ok(Json(Page { items: found.into_iter().map(TopicRequestItem::from).collect(), cursor }))
}

/// A request of the caller.
#[utoipa::path(get, path = "/v1/topic-subscription-requests/{request_id}",
    params(("request_id" = String, Path, description = "Its id.")),
    responses(
        (status = 200, description = "The request.", body = TopicRequestItem),
        (status = 404, description = "There is no such request of the caller.", body = ErrorBody),
    ))]
pub(crate) async fn read_topic_request(
    State(api): State<Arc<ApiState>>,
    Caller(person): Caller,
    Path(id): Path<String>,
) -> Result<Json<TopicRequestItem>, Error> {
    let found = request::find(api.control.database(), read_id(&id)?).await?;
    let own = found.filter(|request| request.requester == person);
    Ok(Json(own.ok_or(Refused::UnknownRequest)?.into()))
}

/// Cancels a pending request of the caller.
#[utoipa::path(delete, path = "/v1/topic-subscription-requests/{request_id}",
    params(("request_id" = String, Path, description = "Its id.")),
    responses(
        (status = 200, description = "The request, which is cancelled.", body = TopicRequestItem),
        (status = 404, description = "There is no such request of the caller.", body = ErrorBody),
        (status = 409, description = "It is not pending; `details.status` says what it is.", body = ErrorBody),
    ))]
pub(crate) async fn cancel_topic_request(
    State(api): State<Arc<ApiState>>,
    Caller(person): Caller,
    Path(id): Path<String>,
) -> Result<Json<TopicRequestItem>, Error> {
    let database = api.control.database();
    request::cancel(database, &person, read_id(&id)?, api.now()).await?;
    let found = request::find(database, &id).await?;
    Ok(Json(found.ok_or(Refused::UnknownRequest)?.into()))
}
