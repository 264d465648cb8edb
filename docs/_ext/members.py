"""What the reference lists of a class: every public method and property that the package defines,
those of its mixins included, and the sections of its page.
"""

import inspect
from dataclasses import dataclass
from functools import cached_property

# fitted models, whose members are grouped by topic
GROUPED = (
    "AverageResults",
    "BBLResults",
    "BiclusterResults",
    "DensityResults",
    "NetworkResults",
    "ShooterResults",
)

# the sections of their pages, in order; a section without members is left out
TOPICS = {
    "Estimates": """
        coef means covariances conditional_couplings discriminants params tidy thresholds terms
        order_counts n_parameters
        nparams formula log_z lkh posterior converged history fitness_history awnb_weights
        wanbia_weights manb_arc_posterior names
    """,
    "Structure": """
        arcs narcs families feature_families features class_var classes vars values members
        modelstring learner score_log is_anb is_kde is_nb is_ode is_semi_naive
    """,
    "Groups of rows and columns": """
        groups row_groups column_groups block_means block_counts assign
    """,
    "Inference": """
        inference bse params_se tvalues pvalues conf_int cov_params bootstrap interactions
        odds_ratios
    """,
    "Effects": """
        avg_comparisons comparisons avg_predictions predictions avg_slopes
    """,
    "Prediction": """
        predict predict_batches fitted residuals with_priors explain importance relevant
        reconstruct score_samples
    """,
    "Evaluation": """
        evaluate score log_loss crossVal tuning mse rand_index
    """,
    "Goodness of fit": """
        logLik cLogLik pnll aic bic claic clbic compare goodness_of_fit cells
    """,
    "Simulation": """
        sample mcSample
    """,
    "Training data": """
        nobs weights class_shares model_frame labels
    """,
    "Plots and graphs": """
        plot plot_means plot_regions plot_discriminants plot_network plot_logo plot_terms
        plot_mosaic plot_history plot_selection plot_similarity to_networkx to_dot
    """,
    "Reports and storage": """
        summary report explore save write_bif
    """,
}


def own_members(cls: type) -> tuple[list[str], list[str]]:
    """Return the names of the public methods and properties of a class, those of its bases inside
    `bbl` included.

    They come from ``dir(cls)``, so that nothing has to be listed by hand. What a base outside the
    package brings along (float, Exception, scikit-learn's estimators) is described by its own
    reference.
    """
    methods = []
    properties = []
    for name in dir(cls):
        member = inspect.getattr_static(cls, name)
        is_property = isinstance(member, property | cached_property)
        function = getattr(member, "fget", None) or getattr(member, "func", None) or member
        function = getattr(function, "__func__", function)  # of class methods and static methods
        package = (getattr(function, "__module__", None) or "").split(".")[0]
        if name.startswith("_") or package != "bbl" or inspect.isclass(function):
            continue
        if is_property:
            properties.append(name)
        elif inspect.isroutine(function):
            methods.append(name)
    return methods, properties


def sections(cls: type) -> dict[str, dict[str, str]]:
    """Return the sections of the page of a class by title: for each member, ``"method"`` or
    ``"property"``.
    """
    methods, properties = own_members(cls)
    kinds = dict.fromkeys(methods, "method") | dict.fromkeys(properties, "property")
    names_by_title = (
        {title: names.split() for title, names in TOPICS.items()}
        if cls.__name__ in GROUPED
        else {"Methods": methods, "Properties": properties}
    )
    found = {}
    for title, names in names_by_title.items():
        own = {name: kinds[name] for name in names if name in kinds}
        if own:
            found[title] = own
    return found


@dataclass(frozen=True)
class Sections:
    """`sections` of a class by its full name: what the template of a class page calls (a function
    is no setting).
    """

    def __call__(self, fullname: str) -> dict[str, dict[str, str]]:
        from sphinx.ext.autosummary import import_by_name

        return sections(import_by_name(fullname)[1])


def check(app, env) -> None:
    """Warn of each public member of a class in the reference that no page describes."""
    from sphinx.ext.autosummary import import_by_name
    from sphinx.util import logging

    known = env.get_domain("py").objects
    for fullname, entry in list(known.items()):
        if entry.objtype in ("class", "exception") and not entry.aliased:
            for name in sum(own_members(import_by_name(fullname)[1]), []):
                if f"{fullname}.{name}" not in known:
                    message = "%s.%s is not in the reference"
                    logging.getLogger(__name__).warning(
                        message, fullname, name, location=entry.docname
                    )


def setup(app) -> dict:
    """Hand the sections of a class to its template, and look at the end whether any is missing."""
    app.config.autosummary_context["sections"] = Sections()
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True}
