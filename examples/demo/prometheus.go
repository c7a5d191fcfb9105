package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// sample is one series of an answer.
type sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"` // absent for a native histogram
}

// number is the value; NaN for a native histogram.
func (s sample) number() float64 {
	text, _ := s.Value[1].(string)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return v
}

// get asks the API of Prometheus.
func (s *System) get(ctx context.Context, path string, query url.Values, result any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Web+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	answer := struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   any    `json:"data"`
	}{Data: result}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("%w: %s", err, body)
	}
	if answer.Status != "success" {
		return errors.New(answer.Error)
	}
	return nil
}

// ask evaluates a query at an instant.
func (s *System) ask(ctx context.Context, expr string, at time.Time) ([]sample, error) {
	var data struct {
		Result []sample `json:"result"`
	}
	err := s.get(ctx, "/api/v1/query", url.Values{
		"query": {expr}, "time": {strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)},
	}, &data)
	return data.Result, err
}

// total adds up all that Prometheus has counted so far.
func (s *System) total(ctx context.Context) (float64, error) {
	got, err := s.ask(ctx, `sum({__name__=~"latency_budget_[a-z_]+_(total|count)"})`, time.Now())
	if err != nil {
		return 0, fmt.Errorf("prometheus: %w", err)
	}
	if len(got) == 0 {
		return 0, nil
	}
	return got[0].number(), nil
}

// settle waits until what was sent has gone all the way: the total is above what it
// was before, and has stopped growing.
func (s *System) settle(ctx context.Context, before float64) error {
	const calm = 4 // scrapes
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	pause := collect + time.Second
	last, same := before, 0
	for same < calm {
		select {
		case <-ctx.Done():
			return fmt.Errorf("nothing arrives in Prometheus: %w", ctx.Err())
		case <-time.After(pause):
		}
		pause = scrape
		if err := s.dead(); err != nil {
			return err
		}
		now, err := s.total(ctx)
		switch {
		case err != nil:
			return err
		case now > last:
			last, same = now, 1
		case now == last && last > before: // a scrape that failed tells nothing
			same++
		}
	}
	return nil
}
