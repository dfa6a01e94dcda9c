//! `/v1/topic-subscriptions`: the topics that the caller has, or had (S-1, S-3).

use std::sync::Arc;

use axum::{Json, extract::State};
use kukuri_control::subscription::{self, TopicSubscription};
use kukuri_domain::TopicId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Ended, names_of};
use crate::{
    ApiState,
    answer::Page,
    credentials::Caller,
    cursor::unknown,
    error::{Error, ErrorBody},
    extract::{PageLimit, Path, Query},
};

type Limit = PageLimit<50, 200>;

#[derive(Serialize, ToSchema)]
pub(crate) struct TopicSubscriptionItem {
    topic_id: String,
    /// Its name, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    topic_name: Option<String>,
    services: Vec<&'static str>,
    status: SubscriptionStatus,
    started_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<u64>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum SubscriptionStatus {
    Active,
    Ended,
}

impl From<TopicSubscription> for TopicSubscriptionItem {
    fn from(subscription: TopicSubscription) -> Self {
        let TopicSubscription { topic, topic_name, services, started_at, ended_at } = subscription;
        Self {
            topic_id: topic.to_string(),
            topic_name,
            services: names_of(&services),
            status: if ended_at.is_none() { SubscriptionStatus::Active } else { SubscriptionStatus::Ended },
            started_at: started_at.0,
            ended_at: ended_at.map(|time| time.0),
        }
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct TopicSubscriptionsParameters {
    /// Subscriptions on a page; clamped.
    #[serde(default)]
    #[param(schema_with = Limit::schema, required = false)]
    limit: Limit,
    /// The `cursor` of the page before.
    cursor: Option<String>,
}

/// The topics that the caller subscribes to or did, by id.
#[utoipa::path(get, path = "/v1/topic-subscriptions", params(TopicSubscriptionsParameters), responses(
    (status = 200, description = "A page of subscriptions.", body = Page<TopicSubscriptionItem>),
))]
pub(crate) async fn list_topic_subscriptions(
    State(api): State<Arc<ApiState>>,
    Caller(person): Caller,
    Query(parameters): Query<TopicSubscriptionsParameters>,
) -> Result<Json<Page<TopicSubscriptionItem>>, Error> {
    let limit = parameters.limit.0;
    let after = parameters
        .cursor
        .map(|cursor| api.read_topic_id(&cursor).ok_or_else(|| Error::invalid_parameter("cursor", unknown())));
    let after = after.transpose()?;
    let mut found = subscription::list(api.control.database(), &person).await?;
    // A database may sort texts by a language.
    found.sort_unstable_by(|one, other| one.topic.cmp(&other.topic));
    found.retain(|subscription| after.as_ref().is_none_or(|after: &TopicId| subscription.topic > *after));
    let has_more = found.len() > limit;
    found.truncate(limit);
    let cursor = found.last().filter(|_| has_more).map(|last| last.topic.to_string());
    Ok(Json(Page { items: found.into_iter().map(TopicSubscriptionItem::from).collect(), cursor }))
}

/// Ends a subscription of the caller.
#[utoipa::path(delete, path = "/v1/topic-subscriptions/{topic_id}",
    params(("topic_id" = String, Path, description = "The topic, by its id or its name.")),
    responses(
        (status = 200, description = "The subscription has ended.", body = Ended),
        (status = 404, description = "The caller does not subscribe to this topic.", body = ErrorBody),
    ))]
pub(crate) async fn end_topic_subscription(
    State(api): State<Arc<ApiState>>,
    Caller(person): Caller,
    Path(topic): Path<String>,
) -> Result<Json<Ended>, Error> {
    let topic = api.read_topic("topic_id", &topic)?;
    subscription::end(api.control.database(), &person, &topic, api.now()).await?;
    api.control.refresh(api.now()).await?;
    Ok(Json(Ended::NOW))
}
