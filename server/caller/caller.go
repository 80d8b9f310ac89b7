// Package caller says who is calling.
package caller

import (
	"context"
	"net/netip"
	"slices"
)

// Scopes of keys.
const (
	// ScopeGenerate opens the data plane.
	ScopeGenerate = "generate"
	// ScopeAdmin opens everything but the node registry.
	ScopeAdmin = "admin"
	// ScopeAdminRead opens the reads of the control plane.
	ScopeAdminRead = "admin:read"
	// ScopeNode opens the node registry and nothing else. Node keys alone have it.
	ScopeNode = "node"
)

// Caller is the key behind a call and what it may do. It is shared between calls: readers must not change it.
type Caller struct {
	// KeyID is empty for the bootstrap key.
	KeyID   string
	KeyName string
	// NodeID is the one node that a node key registers, and empty for every other key.
	NodeID string
	Scopes []string
	OrgID  string
	TeamID string
	// AllowedModels is the key's own list: what a client may call, or a node serve. Empty allows any.
	AllowedModels []string
	// AllowedCIDRs are the networks that a node's endpoint may lie in beside public ones.
	AllowedCIDRs []netip.Prefix
	// RPMLimit and TPMLimit are per minute over all models; 0 is unlimited.
	RPMLimit int32
	TPMLimit int64
}

// May reports whether the caller has one of the scopes; admin implies all but node, which is
// bound to one node.
func (c *Caller) May(scopes ...string) bool {
	for _, s := range c.Scopes {
		if s == ScopeAdmin && !slices.Contains(scopes, ScopeNode) || slices.Contains(scopes, s) {
			return true
		}
	}
	return false
}

type contextKey struct{}

// NewContext attaches the caller.
func NewContext(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// From returns the caller that access attached, or a caller without any scope.
func From(ctx context.Context) *Caller {
	if c, ok := ctx.Value(contextKey{}).(*Caller); ok {
		return c
	}
	return &Caller{}
}

type requestIDKey struct{}

// WithRequestID attaches the id that a call's response, logs and usage events share.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestID returns the id of the call, or "" outside one.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}
