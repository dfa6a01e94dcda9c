//! What an operator changes (K-1, K-2): each action does its work and leaves one audit row, or does nothing.

use kukuri_control::{
    Action, Control, Refused,
    account::{self, AccountStatus},
    actions::{
        ApproveRequest, AssignPlan, Ban, Configure, CreateInvite, DraftPolicy, LiftBan, PublishPolicy, RejectRequest,
        ReplaceTokenSecret, RevokeInvite, SetAccountStatus, SetAdmission, SetAllowed, SetPlanLimit,
    },
    admission::{self, AdmissionMode},
    audit::{self, Actor, AuditRow, Door, Role},
    invite,
    metric::Metric,
    plan,
    policy::{self, PolicyType},
    request::{self, NewRequest, RequestLimits, RequestStatus, Service},
    token,
};
use kukuri_domain::PublicKey;
use serde_json::{Value, json};

use crate::{
    policies::version,
    support::{self, START, later, on_both, person, topic},
};

/// The control plane with an account, and who acts on it.
struct Office {
    control: Control,
    actor: Actor,
}

impl Office {
    async fn open(home: &support::Control, actor: Actor) -> Self {
        home.join(&person(1)).await;
        Self { control: Control::open(home.database.clone(), START).await.unwrap(), actor }
    }

    async fn rows(&self) -> Vec<AuditRow> {
        audit::list(self.control.database(), None, 100).await.unwrap()
    }

    /// Performs an action, which leaves one row. Returns its answer and the row.
    async fn perform<A: Action>(&self, action: A) -> (A::Done, AuditRow) {
        let before = self.rows().await.len();
        let done = self.control.perform(&action, &self.actor, START).await.unwrap();
        let mut rows = self.rows().await;
        assert_eq!(rows.len(), before + 1);
        (done, rows.swap_remove(0))
    }

    /// Performs an action that is refused, which leaves no row. Returns the name of the refusal.
    async fn refusal<A: Action>(&self, action: A) -> String {
        let before = self.rows().await;
        let refused = support::name(self.control.perform(&action, &self.actor, START).await);
        assert_eq!(self.rows().await, before, "{refused}");
        refused
    }

    async fn ask(&self, number: u8) -> String {
        let asked = NewRequest { topic: topic(number), topic_name: None, services: vec![Service::Index], reason: None };
        let made = request::create(self.control.database(), &person(1), &asked, RequestLimits::default(), START).await;
        made.unwrap().id
    }
}

fn told(row: &AuditRow) -> (&str, Option<PublicKey>, &Value, Option<&str>) {
    (&row.action, row.person, &row.diff, row.public_reason.as_deref())
}

fn moderator() -> Actor {
    Actor { key: Some(person(9)), role: Role::Moderator, door: Door::Console, request_id: None }
}

on_both! {
    async fn accounts_are_disabled_and_banned(home) {
        let office = Office::open(home, Actor::command()).await;
        let set = |number, status, reason: Option<&str>| SetAccountStatus {
            pubkey: person(number),
            status,
            reason: reason.map(str::to_owned),
        };
        let disabled = AccountStatus::Disabled;
        let ((), row) = office.perform(set(1, disabled, Some("spam"))).await;
        assert_eq!(
            told(&row),
            ("account.disable", Some(person(1)), &json!({ "status": ["active", "disabled"] }), Some("spam"))
        );
        let known = account::find(office.control.database(), &person(1)).await.unwrap().unwrap();
        assert_eq!((known.status, known.reason.as_deref()), (disabled, Some("spam")));
        let ((), row) = office.perform(set(1, AccountStatus::Active, None)).await;
        assert_eq!(row.action, "account.enable");
        assert_eq!(office.refusal(set(2, disabled, None)).await, "UnknownAccount");
        assert_eq!(office.refusal(set(1, AccountStatus::Deleting, None)).await, "InvalidState");

        let ban = |reason: &str| Ban { pubkey: person(2), reason: reason.to_owned(), until: Some(later(60)) };
        let ((), row) = office.perform(ban("spam")).await;
        let diff = json!({ "banned": [false, true], "until": [null, later(60).0] });
        assert_eq!(told(&row), ("account.ban", Some(person(2)), &diff, Some("spam")));
        assert_eq!(support::name(office.control.people().check_ban(&person(2), START)), "Banned", "at once");
        assert_eq!(office.refusal(ban(" ")).await, "Invalid");
        let lift = LiftBan { pubkey: person(2) };
        let ((), row) = office.perform(lift.clone()).await;
        assert_eq!(told(&row), ("account.unban", Some(person(2)), &json!({ "banned": [true, false] }), None));
        assert_eq!(office.refusal(lift).await, "InvalidState");
    }

    async fn invite_is_made_and_revoked_and_its_code_is_written_nowhere(home) {
        let office = Office::open(home, Actor::command()).await;
        let create = |max_uses| CreateInvite { max_uses, expires_at: Some(later(60)) };
        let ((code, invite), row) = office.perform(create(3)).await;
        assert_eq!(row.target, format!("invite:{}", invite.id));
        let diff = json!({ "max_uses": [null, 3], "expires_at": [null, later(60).0] });
        assert_eq!(told(&row), ("invite.create", None, &diff, None));
        assert_eq!(office.refusal(create(0)).await, "Invalid");
        let revoke = |name: &str| RevokeInvite { name: name.to_owned() };
        assert_eq!(office.refusal(revoke("nonsense")).await, "UnknownInvite");
        let (was, row) = office.perform(revoke(&code)).await;
        assert_eq!((was.revoked_at, row.target), (None, format!("invite:{}", invite.id)));
        assert_eq!(told(&office.rows().await[0]), ("invite.revoke", None, &json!({ "revoked": [false, true] }), None));
        assert_eq!(invite::list(office.control.database()).await.unwrap()[0].revoked_at, Some(START));
        assert_eq!(office.refusal(revoke(&invite.id)).await, "InvalidState");
        let all = format!("{:?}", office.rows().await);
        assert!(!all.contains(&code), "{all}");
    }

    async fn policy_is_drafted_and_published(home) {
        let office = Office::open(home, Actor::command()).await;
        let of = version(PolicyType::Terms, "1");
        let draft = |locale: &str, content: &str| DraftPolicy {
            of: of.clone(),
            locale: locale.to_owned(),
            content: content.to_owned(),
        };
        let (first, row) = office.perform(draft("en", "# Terms\nbe kind")).await;
        assert_eq!((first.title.as_str(), row.target.as_str()), ("Terms", "policy:terms:1"));
        assert_eq!(told(&row), ("policy.draft", None, &json!({ "content_hash.en": [null, first.content_hash] }), None));
        let (second, row) = office.perform(draft("en", "# Terms\nbe kinder")).await;
        assert_eq!(row.diff, json!({ "content_hash.en": [first.content_hash, second.content_hash] }));
        assert_eq!(office.refusal(draft("EN", "text")).await, "Invalid");
        assert_eq!(office.refusal(draft("en\0", "text")).await, "Invalid");

        let publish = |of: &_, effective_at| PublishPolicy { of: Clone::clone(of), effective_at };
        assert_eq!(office.refusal(publish(&version(PolicyType::Terms, "2"), None)).await, "UnknownPolicy");
        let (effective_at, row) = office.perform(publish(&of, Some(later(60)))).await;
        assert_eq!(effective_at, later(60));
        let diff = json!({ "published": [false, true], "effective_at": [null, later(60).0] });
        assert_eq!(told(&row), ("policy.publish", None, &diff, None));
        assert_eq!(office.control.people().published().coming, [(of.clone(), later(60))], "in memory at once");
        assert_eq!(office.refusal(publish(&of, None)).await, "PolicyPublished");
        assert_eq!(office.refusal(draft("en", "text")).await, "PolicyPublished");
        let all = format!("{:?}", office.rows().await);
        assert!(!all.contains("be kind"), "{all}");
        assert_eq!(policy::list(office.control.database()).await.unwrap()[0].content_hash, second.content_hash);
    }

    async fn plan_is_changed_and_assigned(home) {
        let office = Office::open(home, Actor::command()).await;
        let set = |plan: &str, limit| SetPlanLimit { plan: plan.to_owned(), metric: Metric::MaxTopics, limit };
        let (before, row) = office.perform(set(plan::FREE, Some(2))).await;
        assert_eq!((before, row.target.as_str()), (Some(1), "plan:free"));
        assert_eq!(told(&row), ("plan.limit", None, &json!({ "max_topics": [1, 2] }), None));
        let (_, row) = office.perform(set(plan::FREE, None)).await;
        assert_eq!(row.diff, json!({ "max_topics": [2, null] }));
        assert_eq!(office.refusal(set("Not a plan", None)).await, "Invalid");

        let assign = |number, plan: &str| AssignPlan { person: person(number), plan: plan.to_owned() };
        assert_eq!(office.refusal(assign(1, "gold")).await, "UnknownPlan");
        office.perform(set("gold", Some(9))).await;
        assert_eq!(office.refusal(assign(2, "gold")).await, "UnknownAccount");
        let (before, row) = office.perform(assign(1, "gold")).await;
        assert_eq!(before, plan::FREE);
        assert_eq!(told(&row), ("plan.assign", Some(person(1)), &json!({ "plan": ["free", "gold"] }), None));
        assert_eq!(office.control.people().limit(&person(1), Metric::MaxTopics), Some(9), "in memory at once");
    }

    async fn request_is_decided_on_by_an_actor_who_stands_as_a_pseudonym(home) {
        let office = Office::open(home, moderator()).await;
        let limits = RequestLimits::default();
        let approve = |id: &str, limits| ApproveRequest { id: id.to_owned(), note: Some("welcome".to_owned()), limits };
        let first = office.ask(1).await;
        let no_room = RequestLimits { topics: 0, ..limits };
        assert_eq!(office.refusal(approve(&first, no_room)).await, "TooManyTopics");
        assert_eq!(office.refusal(approve("nonsense", limits)).await, "UnknownRequest");
        let (approved, row) = office.perform(approve(&first, limits)).await;
        assert_eq!((approved.status, row.target.as_str()), (RequestStatus::Approved, format!("request:{first}").as_str()));
        let diff = json!({ "status": ["pending", "approved"] });
        assert_eq!(told(&row), ("request.approve", None, &diff, Some("welcome")));
        let pseudonym = format!("person:{}", office.control.secrets().pseudonym(&person(9)).unwrap());
        assert_eq!((row.actor.as_str(), approved.reviewed_by.as_deref()), (pseudonym.as_str(), Some(pseudonym.as_str())));
        assert!(office.control.people().is_subscribed(&person(1), &topic(1), Service::Index), "in memory at once");
        assert_eq!(office.refusal(approve(&first, limits)).await, "RequestNotPending");

        office.perform(SetPlanLimit { plan: plan::FREE.to_owned(), metric: Metric::MaxTopics, limit: None }).await;
        let second = office.ask(2).await;
        let reject = |note: Option<String>| RejectRequest { id: second.clone(), note };
        assert_eq!(office.refusal(reject(Some("x".repeat(request::MAX_TEXT + 1)))).await, "Invalid");
        let (rejected, row) = office.perform(reject(None)).await;
        assert_eq!(rejected.status, RequestStatus::Rejected);
        assert_eq!(told(&row), ("request.reject", None, &json!({ "status": ["pending", "rejected"] }), None));
        assert_eq!(office.refusal(reject(None)).await, "RequestNotPending");
    }

    async fn admission_is_set(home) {
        let office = Office::open(home, Actor::command()).await;
        let (before, row) = office.perform(SetAdmission { mode: AdmissionMode::Allowlist }).await;
        assert_eq!((before, row.target.as_str()), (AdmissionMode::Open, "setting:admission"));
        assert_eq!(told(&row), ("admission.mode", None, &json!({ "mode": ["open", "allowlist"] }), None));
        assert_eq!(office.control.people().admission(), AdmissionMode::Allowlist, "in memory at once");
        let allow = |is_allowed| SetAllowed { pubkey: person(2), is_allowed };
        for (is_allowed, was_allowed, action, diff) in [
            (true, false, "admission.allow", json!({ "allowed": [false, true] })),
            (true, true, "admission.allow", json!({})),
            (false, true, "admission.disallow", json!({ "allowed": [true, false] })),
            (false, false, "admission.disallow", json!({})),
        ] {
            let (was, row) = office.perform(allow(is_allowed)).await;
            assert_eq!(was, was_allowed, "{action}");
            assert_eq!(told(&row), (action, Some(person(2)), &diff, None));
            let listed = admission::allowed(office.control.database()).await.unwrap();
            assert_eq!(listed, if is_allowed { vec![person(2)] } else { Vec::new() });
        }
    }

    async fn keys_of_the_configuration_are_set_and_removed(home) {
        // K-7
        let office = Office::open(home, Actor::command()).await;
        let configure = |grace: Option<&str>| Configure {
            action: "auth.require",
            values: vec![
                ("auth.mode".to_owned(), Some("\"required\"".to_owned())),
                ("auth.grace_seconds".to_owned(), grace.map(str::to_owned)),
            ],
        };
        let (_, row) = office.perform(configure(Some("60"))).await;
        let diff = json!({ "auth.mode": [null, "\"required\""], "auth.grace_seconds": [null, "60"] });
        assert_eq!((row.target.as_str(), told(&row)), ("configuration:auth", ("auth.require", None, &diff, None)));
        assert_eq!(office.control.people().configuration().len(), 2, "in memory at once");
        let (_, row) = office.perform(configure(None)).await;
        assert_eq!(row.diff, json!({ "auth.grace_seconds": ["60", null] }));
        let left = [("auth.mode".to_owned(), "\"required\"".to_owned())];
        assert_eq!(home.people(START).await.configuration(), left.into(), "another process reads the same");
        assert_eq!(office.control.people().admission(), AdmissionMode::Open, "other settings are not keys");
    }

    async fn token_of_a_replaced_secret_is_not_valid_any_more(home) {
        //
        let office = Office::open(home, Actor::command()).await;
        let url = "https://node.example";
        let token = token::issue(&office.control.secrets(), url, &person(1), START).unwrap();
        assert!(token::check(&office.control.secrets(), url, &token.text, START).is_ok());
        let other = Control::open(home.database.clone(), START).await.unwrap();
        let (version, row) = office.perform(ReplaceTokenSecret).await;
        assert_eq!((version, row.target.as_str(), row.diff), (2, "secret:tokens", json!({ "version": [1, 2] })));
        other.refresh(START).await.unwrap();
        for control in [&office.control, &other] {
            assert!(token::check(&control.secrets(), url, &token.text, START).is_err());
            let newer = token::issue(&control.secrets(), url, &person(1), START).unwrap();
            assert!(token::check(&control.secrets(), url, &newer.text, START).is_ok());
        }
    }

    async fn no_row_has_the_key_of_a_person(home) {
        // K-2
        let office = Office::open(home, moderator()).await;
        let id = office.ask(1).await;
        office.perform(ApproveRequest { id, note: None, limits: RequestLimits::default() }).await;
        office.perform(SetAllowed { pubkey: person(1), is_allowed: true }).await;
        office.perform(AssignPlan { person: person(1), plan: plan::FREE.to_owned() }).await;
        office.perform(Ban { pubkey: person(1), reason: "spam".to_owned(), until: None }).await;
        for row in office.rows().await {
            let text = format!("{} {} {}", row.actor, row.target, row.diff);
            assert!(![1, 9].iter().any(|number| text.contains(&person(*number).to_string())), "{text}");
        }
    }
}

/// An action that fails after it has changed something.
struct Half;

impl Action for Half {
    type Done = ();

    async fn apply(
        &self,
        transaction: &mut kukuri_control::Transaction,
        acting: &kukuri_control::Acting<'_>,
    ) -> Result<(), Refused> {
        SetAllowed { pubkey: person(1), is_allowed: true }.apply(transaction, acting).await?;
        Err(Refused::UnknownAccount)
    }
}

on_both! {
    async fn refused_action_undoes_what_it_did_with_its_row(home) {
        // K-1
        let office = Office::open(home, Actor::command()).await;
        assert_eq!(office.refusal(Half).await, "UnknownAccount");
        assert!(admission::allowed(office.control.database()).await.unwrap().is_empty());
    }
}
