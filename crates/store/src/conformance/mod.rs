//! The suite that every store must pass: the model, the embedded store, and those to come.
//!
//! A store crate implements [`Harness`] and calls [`conformance_suite!`](crate::conformance_suite) in a test file. If
//! its stores are durable, it also calls [`crash`] and [`sync`].
//!
//! # Layout
//!
//! - The ground: `subject`, the store under test; [`build`], events for tests; `probe`, what is read off a store;
//!   [`faults`], events that fail inside one.
//! - Rules, in tables with a description per row (`story`): `deletion`, `replacement`, `vanish`, `expiration`, `dedupe`,
//!   `retention`, `capacity`, `outbox`, `subscriptions`, `queries`, `visibility`, `sharing`, and `scale` for what is large.
//! - Properties, tried on random cases from `world` by `runner`, with `coverage` to see that the hard ones came up:
//!   - `convergence`: every order of arrival ends in the set that `oracle` names, which is D-10 as written; `patterns` are
//!     its hard cases; `fold` reads the outbox as a consumer does.
//!   - `answers`: random filters get the model's answers.
//!   - `lifecycle`: a random life, made of `steps`, leaves a store as it leaves the model.
//!   - `reconciling`: nodes that know parts of a story, from [`hearsay`], tell each other the rest.
//! - Durability: [`crash`] kills a store at its work; [`sync`] looks for syncs before acknowledgements.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a suite of tests: what can't happen may stop it")]

mod answers;
pub mod build;
mod capacity;
mod convergence;
mod coverage;
pub mod crash;
mod dedupe;
mod deletion;
mod expiration;
pub mod faults;
mod fold;
pub mod hearsay;
mod lifecycle;
mod oracle;
mod outbox;
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
mod vanish;
mod visibility;
mod world;

pub use runner::case_count;
pub use subject::{Harness, ModelHarness};

/// Runs a test to its end.
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
        /// The tests one by one, as [`conformance_suite!`](crate::conformance_suite) calls them.
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

        /// Makes a `#[test]` of every test of the suite, for the store that this
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
        lifecycle: whatever_is_done_to_it_a_store_stays_like_the_model;
        reconciling: nodes_that_carry_the_same_topics_end_with_the_same;
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
            what_vanished_leaves_no_row_and_is_announced;
        expiration:
            an_event_is_not_served_from_the_moment_it_ends
            a_sweep_turns_off_what_has_ended_and_tells_what_is_next
            what_has_ended_is_refused_and_changes_nothing
            requests_do_not_end;
        dedupe:
            a_repeat_is_counted_and_changes_nothing_else
            a_copy_gets_the_answer_its_state_demands
            what_is_known_is_recalled_and_counted_as_seen_again
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
            a_clock_that_falls_back_does_not_take_ingested_at_with_it;
        capacity:
            stages_are_entered_at_their_thresholds_and_told
            history_is_refused_while_room_is_short
            topics_of_the_lowest_priority_are_shed
            a_purge_for_room_takes_the_oldest_and_never_what_must_stay
            a_topic_that_is_full_of_what_must_stay_refuses_new_events
            the_figures_follow_every_change;
        outbox:
            a_row_tells_what_happened_to_which_event_in_which_topic
            every_change_of_the_effective_set_is_a_row_and_nothing_else_is
            replacing_writes_the_delete_before_the_upsert
            rows_are_read_on_from_any_place_and_offsets_are_kept
            one_instance_at_a_time_runs_a_consumer
            whoever_is_too_far_behind_is_told_to_rebuild
            a_snapshot_read_in_pages_is_made_whole_by_the_rows_after_it;
        subscriptions:
            subscriptions_are_changed_kept_and_listed_by_topic
            whoever_watches_subscriptions_is_told_of_a_change
            a_disabled_topic_stays_readable;
        queries:
            answers_come_newest_first_once_and_within_each_filters_limit
            an_answer_has_no_more_bytes_than_it_may
            an_answer_tells_whether_limits_left_anything_out
            a_count_notes_the_authors_of_what_it_counts
            every_condition_of_a_filter_holds
            tag_values_of_any_form_are_found_and_told_apart
            ids_that_begin_alike_are_told_apart
            only_effective_events_are_answered;
        sharing:
            a_topics_set_is_what_may_be_told_of_it
            a_set_is_read_part_by_part
            requests_are_told_where_they_took_something
            floors_of_versions_deleted_by_id_are_told
            a_hint_is_taken_if_a_request_that_is_here_backs_it
            what_is_told_lasts_as_long_as_its_request;
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
