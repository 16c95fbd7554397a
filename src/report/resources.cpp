// SPDX-License-Identifier: Apache-2.0
// Embeds the files of the page.
#include "resources.h"

#include "files/embedded.h"

namespace hkt::report::resources {

HKT_EMBED(page_html, HKT_PAGE_HTML)
HKT_EMBED(common_js, HKT_COMMON_JS)
HKT_EMBED(report_js, HKT_REPORT_JS)
HKT_EMBED(explain_html, HKT_EXPLAIN_HTML)
HKT_EMBED(explain_js, HKT_EXPLAIN_JS)
HKT_EMBED(plotly_packed, HKT_PLOTLY_PACKED)

}  // namespace hkt::report::resources
