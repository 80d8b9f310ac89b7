package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
)

// plenty is more of anything than the bench uses.
const plenty = 1 << 30

// limits are what a call has to fit under, one counter each. None is ever reached.
var limits = []struct {
	name string
	set  func(context.Context, ktmsv1connect.AdminServiceClient) error
}{
	{"model rpm", onModel(func(m *ktmsv1.ModelSpec) { m.Rpm = plenty })},
	{"daily tokens of the key", onModel(func(m *ktmsv1.ModelSpec) { m.DailyTokensPerKey = 1 << 50 })},
	{"key rpm", onKey(&ktmsv1.APIKeyPolicy{RpmLimit: plenty})},
	{"key tpm", onKey(&ktmsv1.APIKeyPolicy{RpmLimit: plenty, TpmLimit: plenty})},
	{"spend of the key's day", spend("day")},
	{"spend of the key's month", spend("month")},
}

func limitNames() string {
	names := make([]string, 0, len(limits))
	for _, l := range limits {
		names = append(names, l.name)
	}
	return strings.Join(names, ", ")
}

func onModel(change func(*ktmsv1.ModelSpec)) func(context.Context, ktmsv1connect.AdminServiceClient) error {
	return func(ctx context.Context, admin ktmsv1connect.AdminServiceClient) error {
		listed, err := admin.ListModels(ctx, &ktmsv1.AdminServiceListModelsRequest{})
		if err != nil {
			return err
		}
		for _, m := range listed.GetModels() {
			if m.GetId() == modelID {
				m.PriceInPerMtok, m.PriceOutPerMtok = 1, 4 // what has no price is under no spend limit
				change(m)
				_, err := admin.UpsertModel(ctx, &ktmsv1.UpsertModelRequest{Model: m})
				return err
			}
		}
		return fmt.Errorf("the seed has no model %s", modelID)
	}
}

func onKey(policy *ktmsv1.APIKeyPolicy) func(context.Context, ktmsv1connect.AdminServiceClient) error {
	return func(ctx context.Context, admin ktmsv1connect.AdminServiceClient) error {
		_, err := admin.SetAPIKeyPolicy(ctx, &ktmsv1.SetAPIKeyPolicyRequest{Name: clientName, Policy: policy})
		return err
	}
}

func spend(period string) func(context.Context, ktmsv1connect.AdminServiceClient) error {
	return func(ctx context.Context, admin ktmsv1connect.AdminServiceClient) error {
		_, err := admin.SetSpendLimit(ctx, &ktmsv1.SetSpendLimitRequest{SpendLimit: &ktmsv1.SpendLimit{
			SubjectType: "key", SubjectId: clientName, Period: period, LimitNanousd: 1 << 52}})
		return err
	}
}

// client dials its RPC door with a key.
func (g *gateway) client(key string) *connect.Client {
	bearer := func(next connect.ClientFunc) connect.ClientFunc {
		return func(ctx context.Context, spec connect.Spec) (connect.ClientStream, error) {
			if info, ok := connect.CallInfoForClientContext(ctx); ok {
				info.RequestHeader().Set("Authorization", "Bearer "+key)
			}
			return next(ctx, spec)
		}
	}
	return connect.NewClient(connecthttp.NewTransport(http.DefaultClient, g.rpc), bearer)
}

// admin is its control plane.
func (g *gateway) admin() ktmsv1connect.AdminServiceClient {
	return ktmsv1connect.NewAdminServiceClient(g.client(adminKey))
}

// limit sets all limits.
func (g *gateway) limit(ctx context.Context) error {
	admin := g.admin()
	for _, l := range limits {
		if err := l.set(ctx, admin); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return nil
}

// counted fails if the limits did not count. The last calls are still being booked.
func (g *gateway) counted(ctx context.Context) error {
	admin := g.admin()
	for deadline := time.Now().Add(waitAtMost); ; time.Sleep(time.Millisecond) {
		answer, err := admin.GetSpend(ctx, &ktmsv1.GetSpendRequest{SubjectType: "key", SubjectId: clientName})
		if err != nil {
			return err
		}
		left := false
		for _, w := range answer.GetWindows() {
			left = left || w.GetSpentNanousd() == 0 || w.GetReservedNanousd() != 0
		}
		if !left {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the spend is %v", answer.GetWindows())
		}
	}
}
