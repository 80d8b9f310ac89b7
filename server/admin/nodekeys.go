package admin

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/server/access"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/store"
)

// nodePrefixLength is how much of a node key is kept to recognise it by: "ktms_node_" and seven digits.
const nodePrefixLength = 17

// MintNodeKey implements AdminService. A node may have several active keys: its next one is minted and put on the
// machine before the last one is revoked, so that replacing a key never takes the node out of the pool.
func (h *Handler) MintNodeKey(ctx context.Context, req *ktmsv1.MintNodeKeyRequest) (*ktmsv1.MintNodeKeyResponse, error) {
	plain := plainKey(access.NodeKeyPrefix)
	key := store.NodeKey{
		ID: uuid.Must(uuid.NewV7()).String(), Name: req.GetName(), NodeID: req.GetNodeId(),
		Hash: sha256.Sum256([]byte(plain)), Prefix: plain[:nodePrefixLength], AllowedModels: req.GetAllowedModels(),
		CreatedAt: now(),
	}
	version, err := h.change(ctx, req, func(ctx context.Context, tx store.Tx) (err error) {
		if i := slices.Index(key.AllowedModels, ""); i >= 0 {
			return status.Invalid([]status.Violation{{Path: fmt.Sprintf("allowed_models[%d]", i), Text: "is empty; leave the list empty to allow any model"}})
		}
		if key.AllowedCIDRs, err = networks(req.GetAllowedCidrs()); err != nil {
			return err
		}
		if former, err := tx.NodeKeyByName(ctx, key.Name); err == nil && !former.RevokedAt.IsZero() {
			return keepsItsName("node key", key.Name)
		}
		return named(tx.InsertNodeKey(ctx, key), "node key", key.Name)
	})
	if err != nil {
		return nil, err
	}
	return &ktmsv1.MintNodeKeyResponse{PlainKey: plain, NodeKey: nodeKey(key), ConfigVersion: version}, nil
}

// networks reads CIDRs into the one form in which equal networks are equal. The validation of the request has seen to it
// that no bits of a host are set.
func networks(cidrs []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for i, text := range cidrs {
		network, err := netip.ParsePrefix(text)
		if err == nil && network.Addr().Is4In6() {
			// Fewer bits would reach beyond the IPv4 addresses, and Prefix refuses them.
			network, err = network.Addr().Unmap().Prefix(network.Bits() - mappedBits)
		}
		if err != nil {
			return nil, status.Invalid([]status.Violation{{Path: fmt.Sprintf("allowed_cidrs[%d]", i), Text: "is not a network such as 10.1.0.0/16 or fd00:1::/48"}})
		}
		if !slices.Contains(all, network) {
			all = append(all, network)
		}
	}
	return all, nil
}

// mappedBits is how many bits stand before the IPv4 address in ::ffff:a.b.c.d.
const mappedBits = 96

// ListNodeKeys implements AdminService.
func (h *Handler) ListNodeKeys(ctx context.Context, req *ktmsv1.ListNodeKeysRequest) (*ktmsv1.ListNodeKeysResponse, error) {
	keys, next, err := listedPage(ctx, h, req, h.options.Store.ListNodeKeys, func(key store.NodeKey) string { return key.Name })
	if err != nil {
		return nil, err
	}
	out := &ktmsv1.ListNodeKeysResponse{NextPageToken: next}
	for _, key := range keys {
		out.NodeKeys = append(out.NodeKeys, nodeKey(key))
	}
	return out, nil
}

// RevokeNodeKey implements AdminService. The node that registered with the key leaves the pool at once, also where the key
// was revoked before and the pool did not answer then.
func (h *Handler) RevokeNodeKey(ctx context.Context, req *ktmsv1.RevokeNodeKeyRequest) (*ktmsv1.RevokeNodeKeyResponse, error) {
	var key store.NodeKey
	version, err := h.change(ctx, req, func(ctx context.Context, tx store.Tx) (err error) {
		if key, err = tx.NodeKeyByName(ctx, req.GetName()); err != nil || !key.RevokedAt.IsZero() {
			return named(err, "node key", req.GetName())
		}
		key.RevokedAt = now()
		return tx.RevokeNodeKey(ctx, key.ID, key.RevokedAt)
	})
	if err != nil {
		return nil, err
	}
	removed := h.expel(ctx, key.NodeID, key.ID)
	return &ktmsv1.RevokeNodeKeyResponse{NodeKey: nodeKey(key), ConfigVersion: version, NodeRemoved: removed}, nil
}

func nodeKey(key store.NodeKey) *ktmsv1.NodeKey {
	out := &ktmsv1.NodeKey{Id: key.ID, Name: key.Name, NodeId: key.NodeID, Prefix: key.Prefix,
		AllowedModels: key.AllowedModels, CreatedAt: timestamppb.New(key.CreatedAt)}
	for _, network := range key.AllowedCIDRs {
		out.AllowedCidrs = append(out.AllowedCidrs, network.String())
	}
	if !key.RevokedAt.IsZero() {
		out.RevokedAt = timestamppb.New(key.RevokedAt)
	}
	return out
}
