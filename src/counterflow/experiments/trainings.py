"""Which trainings the experiments need: one for every learning rate and weight decay, and more."""

from ..runs.configuration import Configuration
from ..runs.run import Run, TrainingSeries
from ..runs.training import Training


def training(configuration: Configuration, learning_rate: float, weight_decay: float) -> Training:
    """The training at a learning rate and a weight decay; the error is predicted at the first."""
    index = configuration.learning_rates.index(learning_rate)
    predict = weight_decay == configuration.weight_decays[0]
    return Training(
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        seed=configuration.seed,
        steps=configuration.steps[index],
        records=configuration.records,
        orders=configuration.orders,
        predict=predict,
        restart=configuration.restart if predict else None,
        rtol=configuration.rtol,
    )


def all_pairs(configuration: Configuration) -> tuple[Training, ...]:
    """The trainings at every learning rate and weight decay."""
    return tuple(
        training(configuration, rate, decay)
        for rate in configuration.learning_rates
        for decay in configuration.weight_decays
    )


def at_weight_decay(configuration: Configuration, weight_decay: float) -> tuple[Training, ...]:
    """The trainings at every learning rate and one weight decay."""
    return tuple(
        training(configuration, rate, weight_decay) for rate in configuration.learning_rates
    )


def beyond_stability(configuration: Configuration) -> Training:
    """The training at the large learning rate, beyond 2/sharpness."""
    return Training(
        learning_rate=configuration.large_learning_rate,
        weight_decay=configuration.weight_decays[-1],
        seed=configuration.seed,
        steps=configuration.large_steps,
        records=configuration.records,
        orders=(0, 1),
        rtol=configuration.rtol,
    )


def middle(configuration: Configuration) -> Training:
    """The training at the middle learning rate and the first weight decay, as in Figure 2."""
    rates = configuration.learning_rates
    return training(configuration, rates[len(rates) // 2], configuration.weight_decays[0])


def other_seeds(configuration: Configuration) -> tuple[Training, ...]:
    """The middle training once more for every further seed, without predictions."""
    like = middle(configuration)
    return tuple(
        Training(
            learning_rate=like.learning_rate,
            weight_decay=like.weight_decay,
            seed=seed,
            steps=like.steps,
            records=configuration.records,
            orders=(0, 1),
            rtol=configuration.rtol,
            sharpness=False,
        )
        for seed in configuration.seeds
    )


def series(run: Run, wanted: Training) -> TrainingSeries:
    """What a run knows of a training."""
    return run.trainings[wanted.name]
