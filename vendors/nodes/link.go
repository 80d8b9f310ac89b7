package nodes

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/vendors/guarded"
	"github.com/ai-process/ktms/vendors/openai"
	"github.com/ai-process/ktms/vendors/transport"
)

// link is the way to one node: a guard that knows where its endpoint may lie, and connections that it has judged.
type link struct {
	// what it was made for.
	made    string
	carrier *http.Transport
	dialect *openai.Vendor
	pulse   pulse
}

// links are those of the nodes that were called.
type links struct {
	options Options
	mu      sync.Mutex
	open    map[string]*link
}

// maxAnswer is the longest answer of a machine, in bytes: two million tokens of text, with room for log probabilities. Whoever
// lends a machine is trusted with less of the gateway's memory than a vendor is.
const maxAnswer = 16 << 20

// maxLinks bounds the links that are kept. When there are more, any of them makes room, and is made anew when it is needed.
const maxLinks = 1000

// to returns the link to a node. Another endpoint, or another key, has connections of its own.
func (l *links) to(n *pool.Node) *link {
	made := fmt.Sprint(n.Endpoint, n.KeyID, n.Networks)
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.open[n.ID]
	if known != nil && known.made == made {
		return known
	}
	if known != nil {
		known.carrier.CloseIdleConnections()
	} else if len(l.open) >= maxLinks {
		for id, other := range l.open {
			other.carrier.CloseIdleConnections()
			delete(l.open, id)
			break
		}
	}
	guard := guarded.New(guarded.Options{Allowed: n.Networks, AllowLocal: l.options.AllowLocal, Timeout: l.options.Limits.Connect})
	carrier := transport.Pool(l.options.Limits.Connect, guard.DialContext)
	fresh := &link{made: made, carrier: carrier,
		dialect: openai.New(openai.Options{Transport: carrier, Limits: l.options.Limits, MaxAnswer: maxAnswer, Version: l.options.Version})}
	l.open[n.ID] = fresh
	return fresh
}
