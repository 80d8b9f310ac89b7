package noderegistry

import (
	"context"
	"errors"
	"time"

	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/status"
)

// checkTimeout bounds the check of an endpoint, which asks the DNS. The agent waits for 5 s, and hears why.
const checkTimeout = 3 * time.Second

// Fault is what is wrong with an endpoint.
type Fault int

// The faults.
const (
	// Malformed: it is no base URL. Nothing was looked up, so that the error tells of the URL alone.
	Malformed Fault = iota
	// Forbidden: it stands for an address that the key does not allow.
	Forbidden
	// Unresolved: its host has no address, as far as the DNS tells now.
	Unresolved
)

// EndpointError is why an endpoint is refused. The node is told of Err only where the endpoint is Malformed: the others
// name addresses inside the network.
type EndpointError struct {
	Fault Fault
	Err   error
}

func (e *EndpointError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *EndpointError) Unwrap() error { return e.Err }

const (
	textForbidden = "the endpoint's address is not allowed for this key; an admin opens private networks with allowed_cidrs of " +
		"MintNodeKey, and loopback, for development, with NODE_ALLOW_LOCALHOST_ENDPOINTS"
	textUnresolved = "the gateway cannot resolve the endpoint's host; check its name, or wait until the DNS knows it"
)

// endpoint checks an endpoint for a key and returns it in the spelling that is dialled.
func (h *Handler) endpoint(ctx context.Context, raw string, key *caller.Caller) (string, error) {
	checking, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	endpoint, err := h.options.CheckEndpoint(checking, raw, key.AllowedCIDRs)
	if err == nil {
		return endpoint, nil
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	var refused *EndpointError
	switch {
	case !errors.As(err, &refused):
		return "", err
	case refused.Fault == Malformed:
		return "", status.Invalid([]status.Violation{{Path: "endpoint", Text: refused.Error()}})
	}
	h.options.Log.WarnContext(ctx, "a node's endpoint was refused", "node", key.NodeID, "by", key.KeyName, "error", err,
		"request_id", caller.RequestID(ctx))
	if refused.Fault == Forbidden {
		return "", status.Invalid([]status.Violation{{Path: "endpoint", Text: textForbidden}})
	}
	return "", status.New(status.FailedPrecondition, textUnresolved)
}
