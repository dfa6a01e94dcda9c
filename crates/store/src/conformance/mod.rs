//! The conformance suite that every store must pass: the model, the embedded store, and future stores.
//!
//! A store crate implements [`Harness`] and calls [`conformance_suite!`](crate::conformance_suite) in a test file. If
//! its stores are durable, it also calls [`crash`] and [`sync`].
//!
//! # Layout
//!
//! - Fixtures: `subject`, the store under test; [`build`], events for tests; `probe`, reads of a store's state;
//!   [`faults`], injected failures inside a store; [`faulty`], a failing wrapper around a store, for tests of other
//!   crates.
//! - Rules, in tables with a description per row (`story`): `deletion`, `replacement`, `vanish`, `expiration`,
//!   `dedupe`, `retention`, `capacity`, `outbox`, `subscriptions`, `topics`, `queries`, `visibility`, `sharing`, and
//!   `scale` for inputs larger than one step.
//! - Properties, tested by `runner` on random cases from `world`; `coverage` checks that the hard cases occurred:
//!   - `convergence`: every order of arrival ends in the set that `oracle` computes directly from D-10; `patterns`
//!     detects the hard cases; `fold` reads the outbox as a consumer does.
//!   - `answers`: random filters get the model's answers.
//!   - `lifecycle`: a random sequence of `steps` leaves a store in the same state as the model.
//!   - `reconciling`: nodes that each know a part of a random event set, from [`partial_sets`], catch up and converge.
//! - Durability: [`crash`] kills a store while it writes; [`sync`] checks for a sync before each acknowledgement.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a suite of tests: what can't happen may stop it")]

mod answers;
mod budgets;
pub mod build;
mod capacity;
mod convergence;
mod coverage;
pub mod crash;
mod dedupe;
mod deletion;
mod expiration;
pub mod faults;
pub mod faulty;
mod fold;
mod lifecycle;
mod oracle;
mod outbox;
pub mod partial_sets;
mod patterns;
mod probe;
mod queries;
mod reconciling;
mod replacement;
mod retention;
mod runner;
mod scale;
mod sharing;
mod steps;
mod story;
mod subject;
mod subscriptions;
pub mod sync;
mod topics;
mod vanish;
mod visibility;
mod world;

pub use subject::{Harness, ModelHarness};

fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(test)
}

/// Lists every test once, for [`suite`] and for [`conformance_suite!`](crate::conformance_suite).
macro_rules! tests {
    (
        $dollar:tt
        properties { $($property_module:ident: $($property:ident)+;)+ }
        rules { $($rule_module:ident: $($rule:ident)+;)+ }
    ) => {
        /// One function per test, called by [`conformance_suite!`](crate::conformance_suite).
        #[doc(hidden)]
        #[allow(missing_docs, reason = "their names are sentences")]
        pub mod suite {
            use super::Harness;

            $($(
                pub fn $property<H: Harness>(harness: &H) {
                    super::$property_module::$property(harness);
                }
            )+)+
            $($(
                pub fn $rule<H: Harness>(harness: &H) {
                    super::block_on(super::$rule_module::$rule(harness));
                }
            )+)+
        }

        /// Generates a `#[test]` for every test of the suite, for the store that this
        /// [`Harness`](crate::conformance::Harness) opens.
        #[macro_export]
        macro_rules! conformance_suite {
            ($dollar harness:expr) => {
                $($(
                    #[test]
                    fn $property() {
                        $crate::conformance::suite::$property(&$dollar harness);
                    }
                )+)+
                $($(
                    #[test]
                    fn $rule() {
                        $crate::conformance::suite::$rule(&$dollar harness);
                    }
                )+)+
            };
        }
    };
}

tests! { $
    properties {
        convergence: every_order_of_arrival_ends_in_the_set_that_d_10_names;
        answers: random_filters_get_the_models_answers;
        lifecycle: a_store_stays_like_the_model_through_a_random_life;
        reconciling:
            nodes_that_carry_the_same_topics_end_with_the_same
            no_request_hides_one_that_may_be_shared;
    }
    rules {
        deletion:
            a_deletion_by_id_takes_away_what_its_author_owns_in_any_order
            a_deletion_by_address_covers_versions_up_to_its_time
            a_deletion_tells_what_it_took_and_what_it_skipped
            a_tombstone_waits_for_its_target_and_tells_when_it_came
            a_deleted_row_is_hidden_or_gone_by_the_stores_mode
            a_deletion_and_all_its_effects_come_together;
        replacement:
            the_highest_version_of_a_key_is_effective
            an_older_version_never_comes_back
            a_key_shows_its_floor_and_its_effective_version;
        vanish:
            a_vanish_request_takes_everything_up_to_its_time_in_any_order
            vanished_events_leave_no_row_and_are_announced
            a_mark_without_a_request_works_like_one_and_other_nodes_are_not_told;
        expiration:
            expired_event_is_not_served
            a_sweep_turns_off_expired_events_and_tells_the_next_expiration
            expired_event_is_refused_and_changes_nothing
            deletion_and_vanish_requests_do_not_expire;
        dedupe:
            a_repeat_is_counted_and_changes_nothing_else
            a_copy_gets_the_answer_its_state_demands
            a_node_that_tells_of_itself_is_no_sign_of_use
            known_ids_are_recalled_and_counted_as_seen_again
            an_ephemeral_event_leaves_no_trace
            ids_are_known_after_a_restart;
        retention:
            every_class_is_kept_as_long_as_its_retention_says
            an_event_stays_while_any_of_its_topics_keeps_it
            a_purge_finds_what_became_due_behind_an_earlier_one
            a_purged_event_is_not_taken_in_again_while_its_id_is_known
            tombstones_floors_and_marks_last_as_long_as_requests
            a_retention_that_would_bring_things_back_is_refused
            a_jump_of_the_clock_holds_purges_until_it_is_confirmed
            a_hold_of_the_clock_ends_by_itself
            a_clock_set_back_is_not_held_and_purges_nothing
            a_held_clock_does_not_keep_capacity_from_being_enforced
            a_clock_that_falls_back_does_not_take_ingested_at_with_it;
        capacity:
            stages_are_entered_at_their_thresholds_and_told
            history_is_refused_while_room_is_short
            topics_of_the_lowest_priority_are_shed
            a_purge_for_room_takes_the_oldest_and_never_what_must_stay
            a_topic_that_is_full_of_what_must_stay_refuses_more_of_it
            newcomers_add_to_what_must_stay_up_to_its_share_only
            tombstones_count_with_the_request_that_leaves_them
            nothing_gives_way_to_what_exceeds_its_share
            an_author_whose_last_event_goes_is_a_newcomer_again
            the_figures_follow_every_change;
        outbox:
            a_row_tells_what_happened_to_which_event_in_which_topic
            every_change_of_the_effective_set_is_a_row_and_nothing_else_is
            replacing_writes_the_delete_before_the_upsert
            rows_are_read_on_from_any_place_and_offsets_are_kept
            one_instance_at_a_time_runs_a_consumer
            consumer_behind_the_first_row_is_told_to_rebuild
            a_snapshot_read_in_pages_is_made_whole_by_the_rows_after_it
            a_snapshot_page_is_bounded_in_bytes
            an_epoch_survives_reopening_and_each_store_has_its_own;
        subscriptions:
            subscriptions_are_changed_kept_and_listed_by_topic
            watchers_of_subscriptions_are_told_of_a_change
            a_disabled_topic_stays_readable;
        topics:
            a_request_is_bound_to_the_known_topics_that_it_names
            requests_make_no_topic_known
            a_request_is_told_alike_wherever_it_is_bound
            a_topic_that_holds_nothing_goes
            topics_are_listed_in_pages;
        queries:
            answers_come_newest_first_once_and_within_each_filters_limit
            an_answer_has_no_more_bytes_than_it_may
            an_answer_tells_whether_limits_left_anything_out
            a_count_notes_the_authors_of_what_it_counts
            every_condition_of_a_filter_holds
            tag_values_of_any_form_are_found_and_told_apart
            ids_that_begin_alike_are_told_apart
            only_effective_events_are_answered;
        budgets:
            a_spent_budget_fails_a_count_and_leaves_a_query_its_first_part;
        sharing:
            the_shared_set_of_a_topic_holds_its_shareable_events_and_traces
            a_set_is_read_part_by_part
            requests_are_told_where_they_took_something
            no_cause_hides_a_later_one_that_may_be_told
            remains_survive_a_restart_and_a_move
            remains_of_a_key_are_bounded
            remains_in_known_topics_leave_room_for_a_new_one
            remains_last_as_long_as_requests_since_the_last_event
            floors_of_versions_deleted_by_id_are_told
            a_hint_is_taken_if_a_request_that_is_here_backs_it
            traces_last_as_long_as_their_request;
        reconciling:
            a_floor_reaches_a_node_that_never_saw_the_version;
        visibility:
            private_events_are_shown_to_their_parties_only;
        scale:
            long_answers_are_whole_and_in_order
            a_request_takes_as_much_as_it_names
            upkeep_goes_through_all_there_is
            upkeep_that_was_left_goes_on_where_it_was
            room_is_made_in_all_places_that_are_full;
    }
}
