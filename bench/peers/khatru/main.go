// A relay made of khatru and its eventstore's LMDB: khatru port directory.
package main

import (
	"log"
	"net/http"
	"os"

	"github.com/fiatjaf/eventstore/lmdb"
	"github.com/fiatjaf/khatru"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("khatru port directory")
	}
	// Who names no limit gets a quarter of this: 500 events, as from our node. Nothing else is limited by default.
	store := lmdb.LMDBBackend{Path: os.Args[2], MaxLimit: 2000}
	if err := store.Init(); err != nil {
		log.Fatal(err)
	}
	relay := khatru.NewRelay()
	relay.StoreEvent = append(relay.StoreEvent, store.SaveEvent)
	relay.ReplaceEvent = append(relay.ReplaceEvent, store.ReplaceEvent)
	relay.DeleteEvent = append(relay.DeleteEvent, store.DeleteEvent)
	relay.QueryEvents = append(relay.QueryEvents, store.QueryEvents)
	relay.CountEvents = append(relay.CountEvents, store.CountEvents)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], relay))
}
