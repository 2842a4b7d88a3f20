package agent

import (
	"context"

	"guestd.internal/fsapi"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// Search implements guestdv1.FileServiceServer.
func (s *fileService) Search(req *guestdv1.SearchRequest, stream guestdv1.FileService_SearchServer) error {
	ctx, path := stream.Context(), string(req.GetPath())
	root, err := s.files.Stat(ctx, req.GetUser(), path, true)
	if err != nil {
		return err
	}
	out := &searchSender{stream: stream, root: root}
	summary, err := s.files.Search(ctx, req.GetUser(), path, searchOptions(req), out.match)
	if err != nil {
		return err
	}
	return out.summary(ctx, summary)
}

// searchSender sends what a search finds. The header goes out with the first of
// it, so that what cannot be searched is an error before anything was said.
type searchSender struct {
	stream guestdv1.FileService_SearchServer
	root   fsapi.Info
	begun  bool
}

func (s *searchSender) begin() error {
	if s.begun {
		return nil
	}
	s.begun = true
	return s.stream.Send(&guestdv1.SearchResponse{Event: &guestdv1.SearchResponse_Header{
		Header: &guestdv1.SearchHeader{Root: fileInfo(s.root)}}})
}

func (s *searchSender) match(m fsapi.SearchMatch) error {
	if err := s.begin(); err != nil {
		return err
	}
	return s.stream.Send(&guestdv1.SearchResponse{Event: &guestdv1.SearchResponse_Match{Match: searchMatch(m)}})
}

func (s *searchSender) summary(ctx context.Context, summary fsapi.SearchSummary) error {
	if err := s.begin(); err != nil {
		return err
	}
	m := &guestdv1.SearchSummary{
		Files:        summary.Files,
		Matches:      summary.Matches,
		LimitReached: summary.LimitReached,
		FailureCount: summary.FailureCount,
	}
	for _, failure := range summary.Failures {
		m.Failures = append(m.Failures, fileFailure(ctx, failure.Path, failure.Err))
	}
	return s.stream.Send(&guestdv1.SearchResponse{Event: &guestdv1.SearchResponse_Summary{Summary: m}})
}

// searchOptions converts a request; what fsapi checks itself is not checked here.
func searchOptions(m *guestdv1.SearchRequest) fsapi.SearchOptions {
	return fsapi.SearchOptions{
		Include:           toStrings(m.GetInclude()),
		Exclude:           toStrings(m.GetExclude()),
		Pattern:           m.Pattern,
		IgnoreCase:        m.GetIgnoreCase(),
		Invert:            m.GetInvert(),
		Before:            contextLines(m.GetBeforeLines()),
		After:             contextLines(m.GetAfterLines()),
		SkipHidden:        m.GetSkipHidden(),
		Gitignore:         m.GetRespectGitignore(),
		Binary:            m.GetBinary(),
		MaxMatches:        m.GetMaxMatches(),
		MaxMatchesPerFile: m.GetMaxMatchesPerFile(),
		MaxFileBytes:      m.MaxFileBytes,
	}
}

// contextLines keeps a number that is too large, which fsapi refuses, an int.
func contextLines(n uint32) int { return int(min(n, fsapi.MaxContextLines+1)) }

func searchMatch(m fsapi.SearchMatch) *guestdv1.SearchMatch {
	out := &guestdv1.SearchMatch{
		Path:   []byte(m.Path),
		Type:   fileTypes[m.Type],
		Before: searchLines(m.Before),
		After:  searchLines(m.After),
		Binary: m.Binary,
	}
	if m.Line != nil {
		out.Line = searchLine(*m.Line)
	}
	for _, r := range m.Ranges {
		out.Ranges = append(out.Ranges, &guestdv1.ByteRange{Start: uint32(r.Start), End: uint32(r.End)})
	}
	return out
}

func searchLine(l fsapi.SearchLine) *guestdv1.SearchLine {
	return &guestdv1.SearchLine{Number: l.Number, Text: l.Text, Truncated: l.Truncated}
}

func searchLines(lines []fsapi.SearchLine) []*guestdv1.SearchLine {
	out := make([]*guestdv1.SearchLine, len(lines))
	for i, l := range lines {
		out[i] = searchLine(l)
	}
	return out
}
